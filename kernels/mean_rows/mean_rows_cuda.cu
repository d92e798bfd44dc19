#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/mean_rows/mean_rows.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int lanes = 32, warps = 8, threads = lanes * warps;

// Strides in elements.
struct Means {
  std::int64_t rows, width;
  std::int64_t x_group, x_row, y_group;
  const int* end;  // null: rows
  std::int64_t end_stride;

  __device__ __forceinline__ std::int64_t end_of(std::int64_t group) const {
    return end != nullptr ? end[group * end_stride] : rows;
  }
};

// A block has 32 columns of a group, and each of its warps every eighth row, whose sums are added in order.
template <class T>
__global__ void __launch_bounds__(threads) mean_rows_kernel(const Means p, const T* x, T* y) {
  __shared__ float of_warp[warps][lanes];
  const int lane = static_cast<int>(threadIdx.x) % lanes, warp = static_cast<int>(threadIdx.x) / lanes;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * lanes + lane, group = blockIdx.y;
  const std::int64_t end = p.end_of(group);
  const T* const from = x + group * p.x_group + (column < p.width ? column : 0);
  float sum = 0;
  for (std::int64_t t = warp; t < end; t += warps) sum += to_float(from[t * p.x_row]);
  of_warp[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= p.width) return;
  float total = 0;
  for (int w = 0; w < warps; ++w) total += of_warp[w][lane];
  y[group * p.y_group + column] = from_float<T>(total / static_cast<float>(end));
}

template <class T>
__global__ void __launch_bounds__(threads) mean_rows_backward_kernel(const Means p, const T* dy, T* dx) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x, group = blockIdx.y;
  if (i >= p.rows * p.width) return;
  const std::int64_t t = i / p.width, column = i % p.width, end = p.end_of(group);
  const float value = t < end ? to_float(dy[group * p.y_group + column]) / static_cast<float>(end) : 0.0f;
  dx[group * p.x_group + t * p.x_row + column] = from_float<T>(value);
}

Means means_of(const Tensor& x, const Tensor& end, const Tensor& y) {
  return {x.size(1),
          x.size(2),
          x.stride(0),
          x.stride(1),
          y.stride(0),
          end.as<const int>(),
          end.given() ? end.stride(0) : 0};
}

}  // namespace

void mean_rows(const MeanRowsArgs& args, const Launch& launch) {
  if (args.y.count() == 0) return;
  const Means p = means_of(args.x, args.end, args.y);
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("mean_rows", mean_rows_kernel<T>,
        {dim3(blocks_for(p.width, lanes), static_cast<unsigned>(args.x.size(0))), threads}, launch, p,
        args.x.as<const T>(), args.y.as<T>());
  });
}

void mean_rows_backward(const MeanRowsBackwardArgs& args, const Launch& launch) {
  if (args.dx.count() == 0) return;
  const Means p = means_of(args.dx, args.end, args.dy);
  with_gpu_type(args.dx.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("mean_rows_backward", mean_rows_backward_kernel<T>,
        {dim3(blocks_for(p.rows * p.width, threads), static_cast<unsigned>(args.dx.size(0))), threads}, launch, p,
        args.dy.as<const T>(), args.dx.as<T>());
  });
}

}  // namespace longstride::kernels::cuda
