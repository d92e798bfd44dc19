// The kernels of a scan on a GPU, from its sizes alone and without CUDA: scratch, launches, saved states and advice ask
// here. Walks take heads of up to 128 x 128 or 256 x 64 (keys x values) in 16 bits, and advance by runs of positions;
// the portable kernels compute the same for all others, chunk by chunk.
#pragma once
#include "kernels/scan/scan.h"

namespace longstride::kernels {

enum class ScanSlowness : std::uint8_t {
  none,
  direction,   // both
  channels,    // delta with a decay for each
  key_size,    // larger than walks take
  value_size,  // the same
};

// The size that keeps a scan from the walks, its value and the largest that does not; 0: none.
struct ScanFastPath {
  ScanSlowness slowness = ScanSlowness::none;
  std::int64_t value = 0, below = 0;
};
ScanFastPath fast_path_of(const ScanProblem& problem);
bool takes_walks(Device device, const ScanProblem& problem);

// Blocks of a walk that keeps its states in memory: as many as an H200 runs at once.
// per_head: neither decays per channel nor delta.
int walk_blocks(std::int64_t key_size, std::int64_t value_size, bool per_head);

}  // namespace longstride::kernels
