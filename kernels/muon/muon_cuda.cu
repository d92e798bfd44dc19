#include "kernels/base/block_sum.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/muon/muon.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

// One element per thread and one matrix per row of blocks: these passes are short compared with the matrix products
// around them.
__device__ __forceinline__ std::int64_t element() {
  return static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
}

dim3 blocks_of(const Tensor& matrices, std::int64_t count) {
  return {blocks_for(count, threads), static_cast<unsigned>(matrices.size(0))};
}

__global__ void __launch_bounds__(threads)
    nesterov_kernel(const float* gradient, const MatrixOffsets gradient_at, float* m, const MatrixOffsets m_at,
                    float* update, std::int64_t count, float momentum, float rest, const OptimizerScalars* scalars) {
  const std::int64_t i = element();
  if (i >= count) return;
  gradient += gradient_at.at[blockIdx.y];
  m += m_at.at[blockIdx.y];
  update += blockIdx.y * count;
  if (scalars->finite == 0) {
    update[i] = 0;
    return;
  }
  const float g = static_cast<float>(scalars->clip_coefficient) * gradient[i];
  const float moved = momentum * m[i] + rest * g;
  m[i] = moved;
  update[i] = momentum * moved + rest * g;
}

__global__ void __launch_bounds__(threads) squares_kernel(const float* x, double* partials, std::int64_t count) {
  x += blockIdx.y * count;
  double sum = 0;
  for (std::int64_t i = element(); i < count; i += NormaliseArgs::chunks * threads)
    sum += static_cast<double>(x[i]) * x[i];
  sum = block_sum<threads>(sum);
  if (threadIdx.x == 0) partials[blockIdx.y * NormaliseArgs::chunks + blockIdx.x] = sum;
}

template <class T>
__global__ void __launch_bounds__(threads)
    normalise_kernel(const float* x, const double* partials, T* y, std::int64_t count, double epsilon) {
  static_assert(NormaliseArgs::chunks <= threads);
  const double partial =
      threadIdx.x < NormaliseArgs::chunks ? partials[blockIdx.y * NormaliseArgs::chunks + threadIdx.x] : 0;
  const double squares = block_sum<threads>(partial);
  const std::int64_t i = element(), at = blockIdx.y * count + i;
  if (i < count) y[at] = from_float<T>(static_cast<float>(1 / (sqrt(squares) + epsilon)) * x[at]);
}

template <class T>
__global__ void __launch_bounds__(threads)
    polynomial_kernel(const T* x, T* square, std::int64_t n, float c0, float c1, float c2) {
  const std::int64_t i = element();
  if (i >= n * n) return;
  x += blockIdx.y * n * n;
  square += blockIdx.y * n * n;
  const float diagonal = i % (n + 1) == 0 ? c0 : 0.0f;
  square[i] = from_float<T>(c1 * to_float(x[i]) + c2 * to_float(square[i]) + diagonal);
}

template <class T>
__global__ void __launch_bounds__(threads)
    orthogonal_step_kernel(float* weights, T* low_precision, const MatrixOffsets offsets, const T* update,
                           std::int64_t count, double scale, double weight_decay, const OptimizerScalars* scalars) {
  const std::int64_t i = element(), at = offsets.at[blockIdx.y] + i;
  if (i >= count || scalars->finite == 0) return;
  const float rate = static_cast<float>(scalars->learning_rate * scale);
  const float shrink = static_cast<float>(scalars->learning_rate * weight_decay);
  const float w = weights[at] - (rate * to_float(update[blockIdx.y * count + i]) + shrink * weights[at]);
  weights[at] = w;
  if (low_precision != nullptr) low_precision[at] = from_float<T>(w);
}

}  // namespace

void nesterov(const NesterovArgs& args, const Launch& launch) {
  const std::int64_t count = args.update.size(1);
  run("nesterov", nesterov_kernel, {blocks_of(args.update, count), threads}, launch, args.gradient.as<const float>(),
      args.gradient_at, args.m.as<float>(), args.m_at, args.update.as<float>(), count,
      static_cast<float>(args.momentum), static_cast<float>(1 - args.momentum), args.scalars);
}

void normalise(const NormaliseArgs& args, const Launch& launch) {
  const std::int64_t count = args.y.size(1);
  const dim3 chunks(NormaliseArgs::chunks, static_cast<unsigned>(args.y.size(0)));
  run("squares", squares_kernel, {chunks, threads}, launch, args.x.as<const float>(), args.scratch.as<double>(), count);
  with_gpu_type(args.y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("normalise", normalise_kernel<T>, {blocks_of(args.y, count), threads}, launch, args.x.as<const float>(),
        args.scratch.as<const double>(), args.y.as<T>(), count, args.epsilon);
  });
}

void polynomial(const PolynomialArgs& args, const Launch& launch) {
  const std::int64_t n = args.x.size(1);
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("polynomial", polynomial_kernel<T>, {blocks_of(args.x, n * n), threads}, launch, args.x.as<const T>(),
        args.square.as<T>(), n, static_cast<float>(args.c0), static_cast<float>(args.c1), static_cast<float>(args.c2));
  });
}

void orthogonal_step(const OrthogonalStepArgs& args, const Launch& launch) {
  const std::int64_t count = args.update.size(1);
  with_gpu_type(args.update.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("orthogonal_step", orthogonal_step_kernel<T>, {blocks_of(args.update, count), threads}, launch,
        args.weights.as<float>(), args.low_precision.as<T>(), args.at, args.update.as<const T>(), count, args.scale,
        args.weight_decay, args.scalars);
  });
}

}  // namespace longstride::kernels::cuda
