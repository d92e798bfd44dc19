// A ring of slots in shared memory, filled by one side and emptied by the other. Each slot has an mbarrier
// (barrier.cuh) that says "full" and one that says "empty". The n-th use of a slot is the n-th phase of both:
//     fill:  barrier_wait(empty, parity ^ 1)    the previous use has been emptied; the first waits for nothing
//     empty: barrier_wait(full, parity)
#pragma once
#include <cstdint>

namespace longstride::kernels::cuda {

// A slot, and the parity of its current use.
struct RingSlot {
  int index = 0;
  std::uint32_t parity = 0;

  // Moves to the next of `slots` slots.
  __host__ __device__ void advance(int slots) {
    if (++index == slots) {
      index = 0;
      parity ^= 1;
    }
  }
  // Moves on by some slots, of which there may be more than the ring has.
  __host__ __device__ void advance(int by, int slots) {
    index += by;
    for (; index >= slots; index -= slots) parity ^= 1;
  }
};

// The slot after `slot`, where no parity is needed.
__host__ __device__ inline int next_slot(int slot, int slots) { return slot + 1 == slots ? 0 : slot + 1; }

}  // namespace longstride::kernels::cuda
