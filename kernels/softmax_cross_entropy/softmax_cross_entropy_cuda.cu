#include <cfloat>

#include "kernels/base/block_sum.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/ids.h"
#include "kernels/base/vector.cuh"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int warps = 8;

template <class T>
struct LossRows {
  const float* logits;
  Ids targets;
  const float* weights;  // null: 1
  float* losses;
  std::uint8_t* right;  // may be null
  T* gradient;
  std::int64_t rows;
  int vocabulary;
  double scale;
  const float* loss_scale;
};

// The factor of one row's gradient.
template <class T>
__device__ __forceinline__ float scale_of(const LossRows<T>& p, float weight) {
  return weight * static_cast<float>(p.loss_scale != nullptr ? p.scale * static_cast<double>(*p.loss_scale) : p.scale);
}

template <class T>
__device__ __forceinline__ float weight_of(const LossRows<T>& p, std::int64_t row) {
  return p.weights != nullptr ? p.weights[row] : 1.0f;
}

// One warp per row, which it holds in registers: `packs` packs of four per lane.
template <int packs, class T>
__global__ void __launch_bounds__(32 * warps) softmax_cross_entropy_rows(const LossRows<T> p) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.y;
  if (row >= p.rows) return;
  const int lane = static_cast<int>(threadIdx.x), target = p.targets[row];
  const float* logits = p.logits + row * p.vocabulary;
  float x[packs][4], most = -FLT_MAX;
#pragma unroll
  for (int i = 0; i < packs; ++i) {
    const int j = (i * 32 + lane) * 4;
#pragma unroll
    for (int k = 0; k < 4; ++k) x[i][k] = -INFINITY;
    if (j < p.vocabulary) load<4>(logits + j, x[i]);
#pragma unroll
    for (int k = 0; k < 4; ++k) most = fmaxf(most, x[i][k]);
  }
  const float at_target = logits[target];  // read before the gradient may overwrite it
  most = warp_max(most);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < packs; ++i)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      x[i][k] = expf(x[i][k] - most);
      sum += x[i][k];
    }
  sum = warp_sum(sum);
  const float weight = weight_of(p, row);
  if (lane == 0) p.losses[row] = weight * (logf(sum) + (most - at_target));
  if (lane == 0 && p.right != nullptr) p.right[row] = at_target == most ? 1 : 0;
  if (p.gradient == nullptr) return;
  const float scale = scale_of(p, weight), factor = scale / sum;
#pragma unroll
  for (int i = 0; i < packs; ++i) {
    const int j = (i * 32 + lane) * 4;
    if (j >= p.vocabulary) continue;
#pragma unroll
    for (int k = 0; k < 4; ++k) x[i][k] = x[i][k] * factor - (j + k == target ? scale : 0.0f);
    store<4>(p.gradient + row * p.vocabulary + j, x[i]);
  }
}

// Any vocabulary and alignment: the row is read three times.
template <class T>
__global__ void __launch_bounds__(32 * warps) softmax_cross_entropy_any(const LossRows<T> p) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.y;
  if (row >= p.rows) return;
  const int lane = static_cast<int>(threadIdx.x), target = p.targets[row];
  const float* logits = p.logits + row * p.vocabulary;
  float most = -FLT_MAX, sum = 0;
  for (int j = lane; j < p.vocabulary; j += 32) most = fmaxf(most, logits[j]);
  most = warp_max(most);
  for (int j = lane; j < p.vocabulary; j += 32) sum += expf(logits[j] - most);
  sum = warp_sum(sum);
  const float weight = weight_of(p, row);
  if (lane == 0) p.losses[row] = weight * (logf(sum) + (most - logits[target]));
  if (lane == 0 && p.right != nullptr) p.right[row] = logits[target] == most ? 1 : 0;
  __syncwarp();
  if (p.gradient == nullptr) return;
  const float scale = scale_of(p, weight), factor = scale / sum;
  for (int j = lane; j < p.vocabulary; j += 32)
    p.gradient[row * p.vocabulary + j] = from_float<T>(expf(logits[j] - most) * factor - (j == target ? scale : 0.0f));
}

// A block per row, for rows that take a warp long.
template <class T>
__global__ void __launch_bounds__(32 * warps) softmax_cross_entropy_long(const LossRows<T> p) {
  const std::int64_t row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.y * 32 + threadIdx.x), target = p.targets[row];
  const float* logits = p.logits + row * p.vocabulary;
  float most = -FLT_MAX, sum = 0;
  for (int j = thread; j < p.vocabulary; j += 32 * warps) most = fmaxf(most, logits[j]);
  most = of_block<warps>(most, Larger<float>{});
  for (int j = thread; j < p.vocabulary; j += 32 * warps) sum += expf(logits[j] - most);
  sum = of_block<warps>(sum, Sum<float>{});
  const float weight = weight_of(p, row);
  if (thread == 0) p.losses[row] = weight * (logf(sum) + (most - logits[target]));
  if (thread == 0 && p.right != nullptr) p.right[row] = logits[target] == most ? 1 : 0;
  __syncthreads();
  if (p.gradient == nullptr) return;
  const float scale = scale_of(p, weight), factor = scale / sum;
  for (int j = thread; j < p.vocabulary; j += 32 * warps)
    p.gradient[row * p.vocabulary + j] = from_float<T>(expf(logits[j] - most) * factor - (j == target ? scale : 0.0f));
}

}  // namespace

void softmax_cross_entropy(const SoftmaxCrossEntropyArgs& args, const Launch& launch) {
  const std::int64_t rows = args.logits.size(0), vocabulary = args.logits.size(1);
  if (rows == 0) return;
  with_gpu_type(args.gradient.given() ? args.gradient.dtype() : Dtype::f32, [&](auto zero) {
    using T = decltype(zero);
    const LossRows<T> p{args.logits.as<const float>(),
                        ids_of(args.targets),
                        args.weights.as<const float>(),
                        args.losses.as<float>(),
                        args.right.as<std::uint8_t>(),
                        args.gradient.as<T>(),
                        rows,
                        static_cast<int>(vocabulary),
                        args.scale,
                        args.loss_scale};
    constexpr std::int64_t longest_of_warp = 1024;
    if (vocabulary > longest_of_warp)
      return run("softmax_cross_entropy", softmax_cross_entropy_long<T>, {static_cast<unsigned>(rows), dim3(32, warps)},
                 launch, p);
    const bool packed = vocabulary % 4 == 0 && aligned(p.logits, 16) && aligned(p.gradient, 4 * sizeof(T));
    const auto kernel = !packed || vocabulary > 256 ? softmax_cross_entropy_any<T>
                        : vocabulary <= 128         ? softmax_cross_entropy_rows<1, T>
                                                    : softmax_cross_entropy_rows<2, T>;
    run("softmax_cross_entropy", kernel, {blocks_for(rows, warps), dim3(32, warps)}, launch, p);
  });
}

}  // namespace longstride::kernels::cuda
