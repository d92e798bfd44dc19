// The GPU's approximate functions, one instruction each: errors of about 2^-22; numbers below 2^-126 are treated as 0.
// Exponential and logarithm have base 2.
#pragma once

namespace longstride::kernels::cuda {

inline constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace longstride::kernels::cuda
