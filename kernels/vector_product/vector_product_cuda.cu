#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/vector_product/vector_product.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int lanes = 32, warps = 32;
constexpr int at_once = 8;  // rows that a thread loads together

// One block per 32 columns: each warp adds every 32nd row, then the warps' sums are added in order. The kernel is short
// and waits for memory, so it has many threads with several loads each, and rows past the end count as zeros.
template <class T>
__global__ void __launch_bounds__(lanes* warps)
    vector_product_kernel(const float* x, const T* matrix, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                          float* y) {
  __shared__ float of_warp[warps][lanes];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * lanes + threadIdx.x;
  float sum = 0;
  if (column < columns) {
    for (std::int64_t r = threadIdx.y; r < rows; r += at_once * warps) {
      float factor[at_once], element[at_once];
#pragma unroll
      for (int k = 0; k < at_once; ++k) {
        const std::int64_t row = r + k * warps;
        factor[k] = row < rows ? x[row] : 0;
        element[k] = row < rows ? to_float(matrix[row * stride + column]) : 0;
      }
#pragma unroll
      for (int k = 0; k < at_once; ++k) sum += factor[k] * element[k];
    }
  }
  of_warp[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= columns) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < warps; ++w) total += of_warp[w][threadIdx.x];
  y[column] = total;
}

}  // namespace

void vector_product(const VectorProductArgs& args, const Launch& launch) {
  const std::int64_t rows = args.matrix.size(0), columns = args.matrix.size(1);
  if (columns == 0) return;
  with_gpu_type(args.matrix.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("vector_product", vector_product_kernel<T>, {blocks_for(columns, lanes), dim3(lanes, warps)}, launch,
        args.x.as<const float>(), args.matrix.as<const T>(), rows, columns, args.matrix.stride(0), args.y.as<float>());
  });
}

}  // namespace longstride::kernels::cuda
