// Stands in for the kernels' header of this name where their source is compiled for the CPU
// (tests/emulated/machine/block.h).
#pragma once
#include <cmath>

namespace longstride::kernels::cuda {

inline constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;
inline float exp2_approx(float x) { return std::exp2(x); }
inline float log2_approx(float x) { return std::log2(x); }
inline float reciprocal_approx(float x) { return 1 / x; }

}  // namespace longstride::kernels::cuda
