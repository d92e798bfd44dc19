#include "kernels/base/add_partials.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/column_sum/column_sum.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int lanes = 32, warps = 8;

// One block per chunk of rows and 32 n columns: each warp adds every 8th row, then the warps' sums are added in order.
template <int n, class T>
__global__ void __launch_bounds__(lanes* warps)
    column_sum_kernel(const T* x, std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int64_t chunk_rows,
                      float* partials) {
  __shared__ float of_warp[warps][lanes * n];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * lanes * n;
  const std::int64_t column = first + threadIdx.x * n;
  const std::int64_t begin = blockIdx.y * chunk_rows, end = begin + chunk_rows < rows ? begin + chunk_rows : rows;
  float sum[n] = {};
  if (column < columns) {
#pragma unroll 4
    for (std::int64_t r = begin + threadIdx.y; r < end; r += warps) {
      float values[n];
      load<n>(x + r * stride + column, values);
#pragma unroll
      for (int k = 0; k < n; ++k) sum[k] += values[k];
    }
  }
#pragma unroll
  for (int k = 0; k < n; ++k) of_warp[threadIdx.y][threadIdx.x * n + k] = sum[k];
  __syncthreads();
  for (int j = threadIdx.y * lanes + threadIdx.x; j < lanes * n; j += lanes * warps) {
    float total = 0;
#pragma unroll
    for (int w = 0; w < warps; ++w) total += of_warp[w][j];
    if (first + j < columns) partials[blockIdx.y * columns + first + j] = total;
  }
}

}  // namespace

void column_sum(const ColumnSumArgs& args, const Launch& launch) {
  const std::int64_t rows = args.x.size(0), columns = args.x.size(1), stride = args.x.stride(0);
  if (rows == 0 || columns == 0) return;
  const RowChunks split = row_chunks(rows);
  float* partials = args.scratch.as<float>();
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    constexpr int n = pack_of<T>;
    const bool packed = columns % n == 0 && stride % n == 0 && aligned(args.x.data(), 16);
    const dim3 blocks(blocks_for(columns, lanes * (packed ? n : 1)), static_cast<unsigned>(split.chunks));
    run("column_sum", packed ? column_sum_kernel<n, T> : column_sum_kernel<1, T>, {blocks, dim3(lanes, warps)}, launch,
        args.x.as<const T>(), rows, columns, stride, split.rows, partials);
  });
  add_partials({partials, split.chunks, columns, args.total.as<float>()}, launch);
}

}  // namespace longstride::kernels::cuda
