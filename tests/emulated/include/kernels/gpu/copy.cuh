// Stands in for the kernels' header of this name where their source is compiled for the CPU
// (tests/emulated/machine/block.h). A copy happens at a random time before its group is waited for.
#pragma once
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "kernels/gpu/shared.cuh"
#include "tests/emulated/machine/block.h"

namespace longstride::kernels::cuda {

template <unsigned Bytes>
void copy_async_bytes(void* to, const void* from, bool valid) {
  if (reinterpret_cast<std::uintptr_t>(to) % Bytes != 0 || reinterpret_cast<std::uintptr_t>(from) % Bytes != 0)
    throw std::logic_error("an asynchronous copy that is not aligned");
  emulated::copy_begins([=] {
    if (valid)
      std::memcpy(to, from, Bytes);
    else
      std::memset(to, 0, Bytes);
  });
}
inline void copy_async_16(void* to, const void* from, bool valid) { copy_async_bytes<16>(to, from, valid); }
inline void copy_async_4(void* to, const void* from, bool valid) { copy_async_bytes<4>(to, from, valid); }
inline void copies_commit() { emulated::copies_committed(); }
template <int Pending>
void copies_wait() {
  emulated::copies_await(Pending);
}

}  // namespace longstride::kernels::cuda
