// Tile shapes of the forward kernel.
#pragma once
#include <cstdint>

namespace longstride::kernels::cuda::sm90 {

// A block takes `warpgroups` x 64 queries, each warpgroup its own 64, and streams tiles of `keys` keys through a ring
// of `stages`. `blocks` of them are to fit on a multiprocessor. With `specialised` registers a producer warpgroup gives
// its registers to the others; without, the first thread brings the tiles as well.
struct ForwardTiling {
  int warpgroups, keys, stages, blocks;
  bool overlaps;  // the scores of the next tile are computed while the weights of this one meet its values
  bool specialised;
  int producer_registers, consumer_registers;  // when specialised

  constexpr int queries() const { return warpgroups * 64; }
  constexpr int threads() const { return warpgroups * 128 + (specialised ? 128 : 0); }
};

// Few keys for each query (windows, residue classes): bytes and latency count, so blocks are small, several on a
// multiprocessor, and tiles of 64 keys waste little at the edges.
// Many keys: the tensor cores and the exponentials count. Head sizes up to 64 leave room for three warpgroups with the
// scores of two tiles, the weights and the output in 160 registers; with values of 128 there is room for two.
constexpr ForwardTiling forward_tiling(int key_size, int value_size, bool few_keys) {
  if (few_keys) {
    if (value_size <= 32) return {2, 64, 4, 3, false, false, 0, 0};
    if (key_size <= 64 && value_size <= 64) return {1, 64, 4, 4, true, false, 0, 0};
    return {1, 64, 3, 2, true, false, 0, 0};
  }
  if (value_size <= 64) return {3, 128, 4, 1, true, true, 32, 160};
  return {2, 128, 2, 1, true, true, 24, 240};
}

}  // namespace longstride::kernels::cuda::sm90
