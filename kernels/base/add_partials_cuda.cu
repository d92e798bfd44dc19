#include "kernels/base/add_partials.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"

namespace longstride::kernels::cuda {
namespace {

constexpr int lanes = 32, warps = 16;

// One block per 32 columns: each warp adds every 16th chunk, then the warps' sums are added in order.
__global__ void __launch_bounds__(lanes* warps, 1) add_partials_kernel(const PartialSums sums) {
  __shared__ float of_warp[warps][lanes];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * lanes + threadIdx.x;
  const std::int64_t n = sums.totals * sums.columns;
  float sum = 0;
  if (column < n) {
    constexpr int at_once = 33;  // loads in flight: one round for the most chunks that row_chunks makes
    const float* from = sums.partials + threadIdx.y * n + column;
    const auto chunks = static_cast<int>(sums.chunks);
    for (int first = static_cast<int>(threadIdx.y); first < chunks; first += warps * at_once) {
      float value[at_once];
#pragma unroll
      for (int k = 0; k < at_once; ++k) {
        value[k] = first + k * warps < chunks ? *from : 0.0f;
        from += warps * n;
      }
#pragma unroll
      for (int k = 0; k < at_once; ++k) sum += value[k];
    }
  }
  of_warp[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= n) return;
  for (int w = 1; w < warps; ++w) sum += of_warp[w][threadIdx.x];
  const std::int64_t which = column / sums.columns;
  float* total = which == 0 ? sums.total[0] : which == 1 ? sums.total[1] : sums.total[2];
  total[column - which * sums.columns] += sum;
}

}  // namespace

void add_partials(const PartialSums& sums, const Launch& launch) {
  run("add_partials", add_partials_kernel, {blocks_for(sums.totals * sums.columns, lanes), dim3(lanes, warps)}, launch,
      sums);
}

}  // namespace longstride::kernels::cuda
