// Sums and extremes over a block.
#pragma once

namespace longstride::kernels::cuda {

template <class T>
struct Sum {
  __device__ __forceinline__ T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct Larger {
  __device__ __forceinline__ T operator()(T a, T b) const { return a > b ? a : b; }
};
template <class T>
struct Smaller {
  __device__ __forceinline__ T operator()(T a, T b) const { return a < b ? a : b; }
};

// The combination of x over all threads of the block, returned to each of them; the order is fixed. Blocks have one
// dimension, or rows of 32 threads.
template <int warps, class T, class Combine>
__device__ __forceinline__ T of_block(T x, Combine combine) {
  __shared__ T of_warp[warps];
  const unsigned thread = threadIdx.y * 32 + threadIdx.x;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x = combine(x, __shfl_xor_sync(0xFFFFFFFFu, x, offset));
  __syncthreads();  // an earlier call may still read of_warp
  if (thread % 32 == 0) of_warp[thread / 32] = x;
  __syncthreads();
  T all = of_warp[0];
  for (int w = 1; w < warps; ++w) all = combine(all, of_warp[w]);
  return all;
}

template <int threads>
__device__ __forceinline__ double block_sum(double x) {
  return of_block<threads / 32>(x, Sum<double>{});
}

}  // namespace longstride::kernels::cuda
