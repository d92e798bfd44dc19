// Stands in for the kernels' headers of launches where their source is compiled for the CPU
// (tests/emulated/machine/block.h).
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "kernels/base/op.h"

namespace longstride::kernels::cuda {

using cudaStream_t = void*;
inline cudaStream_t stream_of(const Launch& launch) { return launch.stream; }
inline int cudaMemsetAsync(void* to, int byte, std::size_t bytes, cudaStream_t) {
  std::memset(to, byte, bytes);
  return 0;
}
inline void check(int, const char*) {}

inline constexpr std::size_t most_shared_bytes = 227 * 1024;  // a block's limit on Hopper

struct Grid {
  dim3 blocks = 1;
  dim3 threads = 1;
  std::size_t shared_bytes = 0;
};
struct Emulation {
  std::uint64_t seed = 0;
  int multiprocessors = 4;  // for which a launch divides its work
};
inline Emulation emulation;

inline bool is_hopper() { return true; }
inline int multiprocessors() { return emulation.multiprocessors; }
template <class Kernel>
void allow_shared(Kernel, std::size_t) {}
template <class... Parameters, class... Args>
void run(const char*, void (*kernel)(Parameters...), const Grid& grid, const Launch&, const Args&... args) {
  if (grid.shared_bytes > most_shared_bytes)
    throw std::logic_error("a block asks for more shared memory than there is");
  emulated::run_grid({grid.blocks.x, grid.blocks.y, grid.blocks.z}, {grid.threads.x, grid.threads.y, 1}, emulation.seed,
                     [&] { kernel(args...); });
}

}  // namespace longstride::kernels::cuda
