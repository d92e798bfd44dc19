#include "launch/console/host_share.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>

#include "framework/core/device/host_limits.h"
#include "framework/core/device/memory.h"
#include "kernels/gemm/blas.h"

namespace longstride {
namespace {

// Pages of the program and of libraries that only computing touches, and each thread's stack and buffer for products. A
// limit of addresses counts all of these two.
std::int64_t unplanned(const HostMemory& limit, int threads) {
  constexpr std::int64_t mib = 1 << 20, process = 30 * mib, touched = 2 * mib, stack = 8 * mib;
  const auto products = static_cast<std::int64_t>(kernels::cpu::product_buffers(threads));
  return process + (limit.of_addresses ? products + threads * stack : threads * touched);
}

}  // namespace

MemoryLimit host_share(int ranks_on_host) {
  MemoryLimit least;
  for (const HostMemory& limit : host_memory()) {
    const int sharing = limit.of_process ? 1 : ranks_on_host;
    const std::int64_t share =
        std::max<std::int64_t>(0, limit.free / sharing - unplanned(limit, omp_get_max_threads()));
    if (least.bytes && *least.bytes <= share) continue;
    least.bytes = share;
    least.origin = limit.origin;
    if (sharing > 1) least.origin += fmt::format(", for each of {} ranks", sharing);
  }
  return least;
}

void keep_to(const MemoryLimit& share) {
  if (share.bytes) limit_host_blocks(*share.bytes, share.origin);
}

}  // namespace longstride
