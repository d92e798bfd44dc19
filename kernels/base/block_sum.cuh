// Sums over a block.
#pragma once

namespace longstride::kernels::cuda {

// The sum over all threads of the block, returned to each of them; the order is fixed. Call at most once per kernel.
template <int threads>
__device__ __forceinline__ double block_sum(double x) {
  __shared__ double of_warp[threads / 32];
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, offset);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
  __syncthreads();
  double sum = 0;
  for (int w = 0; w < threads / 32; ++w) sum += of_warp[w];
  return sum;
}

}  // namespace longstride::kernels::cuda
