// Stands in for the kernels' header of this name where their source is compiled for the CPU
// (tests/emulated/machine/block.h).
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace longstride::kernels::cuda {

inline void add_to_global(float2* to, float2 x) {
  to->x += x.x;
  to->y += x.y;
}

inline float load_or_zero(const float* from, bool wanted) { return wanted ? *from : 0; }
inline float2 load_or_zero(const float2* from, bool wanted) { return wanted ? *from : float2{0, 0}; }

// Blocks run one after the other, so whatever one of them waits for has been written.
inline void count_release(unsigned* counter) { ++*counter; }
inline void store_release(unsigned* to, unsigned value) { *to = value; }
inline unsigned load_acquire(const unsigned* counter) { return *counter; }

}  // namespace longstride::kernels::cuda
