// How layer_norm's kernels divide a row: `lanes` threads hold it in registers, each in packs of four elements. Rows
// that do not fit (wide ones, and widths that are not a multiple of four) use another kernel, which rereads them.
#pragma once
#include <type_traits>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"

namespace longstride::kernels::cuda {

constexpr int norm_threads = 256;  // per block

// Sums of `values` values over the `lanes` threads that share a row (lanes a power of two; 32 and more: whole warps),
// in a fixed order. Every thread of the block calls it.
template <int lanes, int values>
__device__ __forceinline__ void row_sums(float (&x)[values]) {
#pragma unroll
  for (int v = 0; v < values; ++v) x[v] = warp_sum(x[v]);
  if constexpr (lanes > 32) {
    constexpr int warps = lanes / 32;
    __shared__ float of_warp[values][norm_threads / 32];
    const int warp = static_cast<int>(threadIdx.x) / 32, first = warp / warps * warps;
    __syncthreads();  // other warps may still be reading the previous sums
    if (threadIdx.x % 32 == 0)
      for (int v = 0; v < values; ++v) of_warp[v][warp] = x[v];
    __syncthreads();
#pragma unroll
    for (int v = 0; v < values; ++v) {
      x[v] = 0;
#pragma unroll
      for (int w = 0; w < warps; ++w) x[v] += of_warp[v][first + w];
    }
  }
}

// Row numbers and strides of a layer_norm have 32 bits, element offsets 64.
inline void check_sizes(const Tensor& x) {
  if (x.size(0) >= (1 << 30) || x.size(1) >= (1 << 30) || x.stride(0) >= (1 << 30))
    throw std::logic_error("layer_norm of 2^30 rows, columns or elements between rows");
}
__device__ __forceinline__ std::int64_t at(int row, int stride) { return static_cast<std::int64_t>(row) * stride; }

// Calls f(T{}, R{}) for a compute type and a residual type that go together.
template <class F>
void with_stream_types(Dtype compute, Dtype residual, F&& f) {
  if (compute == Dtype::bf16 && residual == Dtype::bf16) return f(__nv_bfloat16{}, __nv_bfloat16{});
  if (residual != Dtype::f32)
    throw std::logic_error(std::string("a residual stream of ") + name_of(residual) + " with " + name_of(compute));
  with_gpu_type(compute, [&](auto zero) { f(zero, float{}); });
}

// Calls f(lanes, packs) as std::integral_constants with lanes * packs * 4 >= width, or returns false.
template <class F>
bool with_row_shape(std::int64_t width, F&& f) {
  if (width % 4 != 0 || width > 4096) return false;
  if (width <= 128)
    f(std::integral_constant<int, 32>{}, std::integral_constant<int, 1>{});
  else if (width <= 256)
    f(std::integral_constant<int, 32>{}, std::integral_constant<int, 2>{});
  else if (width <= 512)
    f(std::integral_constant<int, 32>{}, std::integral_constant<int, 4>{});
  else if (width <= 1024)
    f(std::integral_constant<int, 64>{}, std::integral_constant<int, 4>{});
  else if (width <= 2048)
    f(std::integral_constant<int, 128>{}, std::integral_constant<int, 4>{});
  else
    f(std::integral_constant<int, 256>{}, std::integral_constant<int, 4>{});
  return true;
}

}  // namespace longstride::kernels::cuda
