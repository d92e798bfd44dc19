// The GPU's element types, and their conversions to and from float.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <stdexcept>
#include <string>

#include "kernels/base/dtype.h"

namespace longstride::kernels {

template <>
struct DtypeOf<__nv_bfloat16> {
  static constexpr Dtype value = Dtype::bf16;
};
template <>
struct DtypeOf<__half> {
  static constexpr Dtype value = Dtype::f16;
};

namespace cuda {

__host__ __device__ inline float to_float(float x) { return x; }
__host__ __device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__host__ __device__ inline float to_float(__half x) { return __half2float(x); }

template <class T>
__host__ __device__ inline T from_float(float x) {
  if constexpr (DtypeOf<T>::value == Dtype::bf16)
    return __float2bfloat16_rn(x);
  else if constexpr (DtypeOf<T>::value == Dtype::f16)
    return __float2half_rn(x);
  else
    return x;
}

// Calls f(T{}) with the type T of `dtype`, which must be one that the GPU computes in.
template <class F>
void with_gpu_type(Dtype dtype, F&& f) {
  if (dtype == Dtype::f32)
    f(float{});
  else if (dtype == Dtype::bf16)
    f(__nv_bfloat16{});
  else if (dtype == Dtype::f16)
    f(__half{});
  else
    throw std::logic_error(std::string("no CUDA kernel computes in ") + name_of(dtype));
}

}  // namespace cuda
}  // namespace longstride::kernels
