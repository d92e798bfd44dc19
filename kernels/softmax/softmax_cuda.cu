#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/softmax/softmax.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int lanes = 32, warps = 8;

__device__ inline std::int64_t this_row() { return static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.y; }

// One warp per row, which it reads three times: from the caches, the second and third.
template <class T>
__global__ void __launch_bounds__(lanes* warps)
    softmax_kernel(const float* matrix, T* result, std::int64_t rows, int columns, float scale) {
  if (this_row() >= rows) return;
  const int lane = static_cast<int>(threadIdx.x);
  const float* const x = matrix + this_row() * columns;
  T* const y = result + this_row() * columns;
  float largest = -INFINITY, sum = 0;
  for (int j = lane; j < columns; j += lanes) largest = fmaxf(largest, scale * x[j]);
  largest = warp_max(largest);
  for (int j = lane; j < columns; j += lanes) sum += expf(scale * x[j] - largest);
  const float share = 1 / warp_sum(sum);
  for (int j = lane; j < columns; j += lanes) y[j] = from_float<T>(expf(scale * x[j] - largest) * share);
}

template <class T>
__global__ void __launch_bounds__(lanes* warps)
    softmax_backward_kernel(const T* result, const float* dresult, T* gradient, std::int64_t rows, int columns,
                            float scale) {
  if (this_row() >= rows) return;
  const int lane = static_cast<int>(threadIdx.x);
  const T* const y = result + this_row() * columns;
  const float* const dy = dresult + this_row() * columns;
  T* const dx = gradient + this_row() * columns;
  float along = 0;
  for (int j = lane; j < columns; j += lanes) along = fmaf(to_float(y[j]), dy[j], along);
  along = warp_sum(along);
  for (int j = lane; j < columns; j += lanes) dx[j] = from_float<T>(scale * to_float(y[j]) * (dy[j] - along));
}

}  // namespace

void softmax(const SoftmaxArgs& args, const Launch& launch) {
  const std::int64_t rows = args.y.size(0);
  with_gpu_type(args.y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("softmax", softmax_kernel<T>, {blocks_for(rows, warps), dim3(lanes, warps)}, launch, args.x.as<const float>(),
        args.y.as<T>(), rows, static_cast<int>(args.y.size(1)), static_cast<float>(args.scale));
  });
}

void softmax_backward(const SoftmaxBackwardArgs& args, const Launch& launch) {
  const std::int64_t rows = args.y.size(0);
  with_gpu_type(args.y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("softmax_backward", softmax_backward_kernel<T>, {blocks_for(rows, warps), dim3(lanes, warps)}, launch,
        args.y.as<const T>(), args.dy.as<const float>(), args.dx.as<T>(), rows, static_cast<int>(args.y.size(1)),
        static_cast<float>(args.scale));
  });
}

}  // namespace longstride::kernels::cuda
