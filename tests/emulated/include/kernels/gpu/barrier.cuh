// Stands in for the kernels' header of this name where their source is compiled for the CPU
// (tests/emulated/machine/block.h).
#pragma once
#include <cstdint>

#include "tests/emulated/machine/block.h"

namespace longstride::kernels::cuda {

inline void barrier_init(std::uint64_t* barrier, int arrivals) {
  emulated::barrier_create(barrier, static_cast<unsigned>(arrivals));
}
inline void barrier_init_fence() {}
inline void barrier_arrive(std::uint64_t* barrier) { emulated::barrier_arrive(barrier, 0); }
inline void barrier_arrive(std::uint64_t* barrier, std::uint32_t times) {
  for (std::uint32_t i = 0; i < times; ++i) emulated::barrier_arrive(barrier, 0);
}
inline void barrier_arrive_expect(std::uint64_t* barrier, std::uint32_t bytes) {
  emulated::barrier_arrive(barrier, bytes);
}
inline void barrier_wait(std::uint64_t* barrier, std::uint32_t parity) { emulated::barrier_await(barrier, parity); }
inline bool barrier_passed_now(std::uint64_t* barrier, std::uint32_t parity) {
  if (emulated::barrier_has_passed(barrier, parity)) return true;
  emulated::wait_for_any_event();
  return emulated::barrier_has_passed(barrier, parity);
}
inline void named_barrier_sync(int id, int threads) { emulated::named_barrier(id, static_cast<unsigned>(threads)); }
inline void named_barrier_arrive(int id, int threads) {
  emulated::named_barrier_arrive(id, static_cast<unsigned>(threads));
}

}  // namespace longstride::kernels::cuda
