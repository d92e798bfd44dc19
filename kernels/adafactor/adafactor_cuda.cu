#include "kernels/adafactor/adafactor.h"
#include "kernels/base/block_sum.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / 32;

// FactoredMatrices and what every pass reads, as a kernel's parameter. The last dimension of a grid counts matrices.
struct Group {
  MatrixOffsets at, rows_at, columns_at;
  const float* gradient;
  float* moments;
  double* row_mean;
  std::int64_t rows, columns;
  const OptimizerScalars* scalars;

  __device__ float scale() const { return static_cast<float>(scalars->clip_coefficient); }
  __device__ float* row_means(unsigned matrix) const { return moments + rows_at.at[matrix]; }
  __device__ float* column_means(unsigned matrix) const { return moments + columns_at.at[matrix]; }
  __device__ double square(unsigned matrix, std::int64_t i) const {
    const float g = scale() * gradient[at.at[matrix] + i];
    return static_cast<double>(g) * static_cast<double>(g);
  }
  // u of element i of a matrix.
  __device__ float update(unsigned matrix, std::int64_t i) const {
    const std::int64_t row = i / columns, column = i - row * columns;
    const float share = static_cast<float>(static_cast<double>(row_means(matrix)[row]) / row_mean[matrix]);
    return scale() * gradient[at.at[matrix] + i] / sqrtf(share * column_means(matrix)[column]);
  }
};

Group group_of(const FactoredMatrices& g, const Tensor& gradient, const Tensor& row_mean,
               const OptimizerScalars* scalars) {
  return {g.at,   g.rows_at, g.columns_at, gradient.as<const float>(), g.moments.as<float>(), row_mean.as<double>(),
          g.rows, g.columns, scalars};
}

__device__ __forceinline__ void follow_mean(float& moment, double mean, double decay) {
  moment = static_cast<float>(decay * static_cast<double>(moment) + (1 - decay) * mean);
}

// A warp per row.
__global__ void __launch_bounds__(threads)
    rows_kernel(const Group g, const std::int64_t* step, double decay_rate, double epsilon) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / 32;
  if (g.scalars->finite == 0 || row >= g.rows) return;
  double sum = 0;
  for (std::int64_t j = threadIdx.x % 32; j < g.columns; j += 32) sum += g.square(blockIdx.z, row * g.columns + j);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
  if (threadIdx.x % 32 == 0)
    follow_mean(g.row_means(blockIdx.z)[row], sum / static_cast<double>(g.columns) + epsilon,
                factored_decay(updates_until(*g.scalars, *step), decay_rate));
}

// A thread per column and chunk of rows; partials (matrices, chunks, columns).
__global__ void __launch_bounds__(threads) columns_kernel(const Group g, double* partials) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (g.scalars->finite == 0 || column >= g.columns) return;
  const std::int64_t begin = blockIdx.y * FactoredMomentsArgs::chunk;
  const std::int64_t end = min(g.rows, begin + FactoredMomentsArgs::chunk);
  double sum = 0;
  for (std::int64_t row = begin; row < end; ++row) sum += g.square(blockIdx.z, row * g.columns + column);
  partials[(static_cast<std::int64_t>(blockIdx.z) * gridDim.y + blockIdx.y) * g.columns + column] = sum;
}

__global__ void __launch_bounds__(threads)
    add_columns_kernel(const Group g, const double* partials, std::int64_t chunks, const std::int64_t* step,
                       double decay_rate, double epsilon) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (g.scalars->finite == 0 || column >= g.columns) return;
  double sum = 0;
  for (std::int64_t c = 0; c < chunks; ++c) sum += partials[(blockIdx.z * chunks + c) * g.columns + column];
  follow_mean(g.column_means(blockIdx.z)[column], sum / static_cast<double>(g.rows) + epsilon,
              factored_decay(updates_until(*g.scalars, *step), decay_rate));
}

// A block per matrix.
__global__ void __launch_bounds__(threads) row_mean_kernel(const Group g) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < g.rows; i += threads) sum += static_cast<double>(g.row_means(blockIdx.z)[i]);
  sum = block_sum<threads>(sum);
  if (threadIdx.x == 0) g.row_mean[blockIdx.z] = sum / static_cast<double>(g.rows);
}

// partials (matrices, chunks, 2)
__global__ void __launch_bounds__(threads) updates_kernel(const Group g, double* partials) {
  if (g.scalars->finite == 0) return;
  double sum = 0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < g.rows * g.columns;
       i += static_cast<std::int64_t>(FactoredSizesArgs::chunks) * threads) {
    const double u = static_cast<double>(g.update(blockIdx.z, i));
    sum += u * u;
  }
  sum = block_sum<threads>(sum);
  if (threadIdx.x == 0) partials[2 * (blockIdx.z * FactoredSizesArgs::chunks + blockIdx.x)] = sum;
}

__global__ void __launch_bounds__(threads) weights_kernel(const Group g, const float* weights, double* partials) {
  if (g.scalars->finite == 0) return;
  weights += g.at.at[blockIdx.z];
  double sum = 0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < g.rows * g.columns;
       i += static_cast<std::int64_t>(FactoredSizesArgs::chunks) * threads)
    sum += static_cast<double>(weights[i]) * static_cast<double>(weights[i]);
  sum = block_sum<threads>(sum);
  if (threadIdx.x == 0) partials[2 * (blockIdx.z * FactoredSizesArgs::chunks + blockIdx.x) + 1] = sum;
}

// Two threads per matrix, one for each of its sizes.
__global__ void sizes_kernel(const Group g, const double* partials, double* sizes) {
  if (g.scalars->finite == 0) return;
  const unsigned matrix = threadIdx.x / 2, which = threadIdx.x % 2;
  double sum = 0;
  for (int c = 0; c < FactoredSizesArgs::chunks; ++c)
    sum += partials[2 * (matrix * FactoredSizesArgs::chunks + static_cast<unsigned>(c)) + which];
  sizes[threadIdx.x] = sqrt(sum / static_cast<double>(g.rows * g.columns));
}

struct Step {
  float* weights;
  float* m;  // null: no momentum
  MatrixOffsets m_at;
  const double* sizes;
  double clip_threshold, beta1, weight_decay;
  bool scale_parameter;
};

template <class LowPrecision>
__global__ void __launch_bounds__(threads) step_kernel(const Group g, const Step p, LowPrecision* low_precision) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (g.scalars->finite == 0) return;
  __shared__ float clip, rate, shrink;
  if (threadIdx.x == 0) {
    const FactoredRates rates =
        factored_rates(*g.scalars, p.sizes + 2 * blockIdx.z, p.clip_threshold, p.scale_parameter, p.weight_decay);
    clip = static_cast<float>(rates.update);
    rate = static_cast<float>(rates.rate);
    shrink = static_cast<float>(rates.shrink);
  }
  __syncthreads();
  if (i >= g.rows * g.columns) return;
  float moved = rate * (clip * g.update(blockIdx.z, i));
  if (p.m != nullptr) {
    float& m = p.m[p.m_at.at[blockIdx.z] + i];
    moved = m = static_cast<float>(p.beta1) * m + static_cast<float>(1 - p.beta1) * moved;
  }
  const std::int64_t at = g.at.at[blockIdx.z] + i;
  const float w = p.weights[at] - (moved + shrink * p.weights[at]);
  p.weights[at] = w;
  if (low_precision != nullptr) low_precision[at] = from_float<LowPrecision>(w);
}

dim3 blocks_of(const FactoredMatrices& group, std::int64_t items, int each, std::int64_t chunks = 1) {
  return {blocks_for(items, each), static_cast<unsigned>(chunks), static_cast<unsigned>(group.matrices)};
}

}  // namespace

void factored_moments(const FactoredMomentsArgs& args, const Launch& launch) {
  const FactoredMatrices& m = args.group;
  const Group g = group_of(m, args.gradient, args.row_mean, args.scalars);
  const std::int64_t chunks = FactoredMomentsArgs::chunks(m.rows);
  run("factored_rows", rows_kernel, {blocks_of(m, m.rows, warps), threads}, launch, g, args.step, args.decay_rate,
      args.epsilon);
  run("factored_columns", columns_kernel, {blocks_of(m, m.columns, threads, chunks), threads}, launch, g,
      args.scratch.as<double>());
  run("factored_add_columns", add_columns_kernel, {blocks_of(m, m.columns, threads), threads}, launch, g,
      args.scratch.as<const double>(), chunks, args.step, args.decay_rate, args.epsilon);
  run("factored_row_mean", row_mean_kernel, {blocks_of(m, 1, 1), threads}, launch, g);
}

void factored_sizes(const FactoredSizesArgs& args, const Launch& launch) {
  const FactoredMatrices& m = args.group;
  const Group g = group_of(m, args.gradient, args.row_mean, args.scalars);
  double* partials = args.scratch.as<double>();
  const dim3 blocks = blocks_of(m, FactoredSizesArgs::chunks, 1);
  run("factored_updates", updates_kernel, {blocks, threads}, launch, g, partials);
  run("factored_weights", weights_kernel, {blocks, threads}, launch, g, args.weights.as<const float>(), partials);
  run("factored_sizes", sizes_kernel, {1, static_cast<unsigned>(2 * m.matrices)}, launch, g, partials,
      args.sizes.as<double>());
}

void factored_step(const FactoredStepArgs& args, const Launch& launch) {
  const FactoredMatrices& m = args.group;
  const Group g = group_of(m, args.gradient, args.row_mean, args.scalars);
  const Step p{args.weights.as<float>(),
               args.m.given() ? args.m.as<float>() : nullptr,
               args.m_at,
               args.sizes.as<const double>(),
               args.clip_threshold,
               args.beta1,
               args.weight_decay,
               args.scale_parameter};
  with_gpu_type(args.low_precision.given() ? args.low_precision.dtype() : Dtype::f32, [&](auto zero) {
    using LowPrecision = decltype(zero);
    run("factored_step", step_kernel<LowPrecision>, {blocks_of(m, m.count(), threads), threads}, launch, g, p,
        args.low_precision.as<LowPrecision>());
  });
}

}  // namespace longstride::kernels::cuda
