// gelu(x) = x sigmoid(1.702 x) and its derivative on the GPU, and gradients through the activations that gemm has. If
// the result is rounded to 16 bits, gelu uses the approximate exponential and reciprocal, whose errors the rounding
// hides.
#pragma once
#include "kernels/base/approximate.cuh"
#include "kernels/base/cuda_types.cuh"
#include "kernels/gemm/gemm.h"

namespace longstride::kernels::cuda {

inline constexpr float gelu_rate = 1.702f;

// sigmoid(1.702 x). An exponential below 2^-126 may be treated as 0, because 1 is added to it.
template <class T>
__device__ __forceinline__ float gelu_gate(float x) {
  if constexpr (DtypeOf<T>::value == Dtype::f32)
    return 1.0f / (1.0f + expf(-gelu_rate * x));
  else
    return reciprocal_approx(1.0f + exp2_approx(-gelu_rate * log2_e * x));
}

template <class T>
__device__ __forceinline__ float gelu_of(float x) {
  return x * gelu_gate<T>(x);
}

// s + 1.702 x s (1 - s), where s is the gate.
template <class T>
__device__ __forceinline__ float gelu_slope_of(float x) {
  const float s = gelu_gate<T>(x), rest = gelu_rate * x;
  return fmaf(fmaf(rest, -s, rest), s, s);
}

// The gradient before the activation from the gradient after it; of gelu, `activated` is the input.
template <Epilogue epilogue, class T>
__device__ __forceinline__ float through_activation(float gradient, float activated) {
  if constexpr (epilogue == Epilogue::relu_backward)
    return activated > 0.0f ? gradient : 0.0f;
  else
    return gradient * gelu_slope_of<T>(activated);
}

}  // namespace longstride::kernels::cuda
