#include <type_traits>

#include "kernels/base/add_partials.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/column_sum/column_sum.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int lanes = 32, warps = 8;
constexpr int at_once = 8;  // rows that a thread loads together

// A thread's share of one row: n columns, with one instruction.
template <int n, class T>
using Part = std::conditional_t<n == 1, T, Words<T, n>>;

template <int n, class T>
__device__ __forceinline__ void add(const Part<n, T>& part, float (&sum)[n]) {
  if constexpr (n == 1) {
    sum[0] += to_float(part);
  } else {
    float values[n];
    unpack(part, values);
#pragma unroll
    for (int k = 0; k < n; ++k) sum[k] += values[k];
  }
}

// One block per chunk of rows and 32 n columns: each warp adds every 8th row, then the warps' sums are added in order.
// Rows are loaded in whole groups, in which those past the end count as zeros, so no thread waits for rows one by one.
template <int n, class T>
__global__ void __launch_bounds__(lanes* warps, 4)
    column_sum_kernel(const T* x, std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int64_t chunk_rows,
                      float* partials) {
  __shared__ float of_warp[warps][lanes * n];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * lanes * n;
  const std::int64_t column = first + threadIdx.x * n, begin = blockIdx.y * chunk_rows;
  const int count = static_cast<int>(min(chunk_rows, rows - begin));
  float sum[n] = {};
  if (column < columns) {
    const T* from = x + (begin + threadIdx.y) * stride + column;
    for (int r = static_cast<int>(threadIdx.y); r < count; r += at_once * warps) {
      Part<n, T> part[at_once];
#pragma unroll
      for (int k = 0; k < at_once; ++k, from += warps * stride) {
        if (r + k * warps >= count)
          part[k] = Part<n, T>{};
        else if constexpr (n == 1)
          part[k] = *from;
        else
          part[k] = read<n>(from);
      }
#pragma unroll
      for (int k = 0; k < at_once; ++k) add<n, T>(part[k], sum);
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
