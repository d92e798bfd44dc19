// gelu(x) = x sigmoid(1.702 x) and its derivative on the GPU. Where the result is rounded to 16 bits, the fast
// exponential and division, whose errors it hides.
#pragma once
#include "kernels/base/cuda_types.cuh"

namespace longstride::kernels::cuda {

template <class T>
__device__ __forceinline__ float sigmoid_of(float x) {
  if constexpr (DtypeOf<T>::value == Dtype::f32)
    return 1.0f / (1.0f + expf(-x));
  else
    return __fdividef(1.0f, 1.0f + __expf(-x));
}

template <class T>
__device__ __forceinline__ float gelu_of(float x) {
  return x * sigmoid_of<T>(1.702f * x);
}

template <class T>
__device__ __forceinline__ float gelu_slope_of(float x) {
  const float s = sigmoid_of<T>(1.702f * x);
  return s + 1.702f * x * s * (1.0f - s);
}

}  // namespace longstride::kernels::cuda
