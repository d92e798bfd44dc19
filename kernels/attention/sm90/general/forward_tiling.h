// Tile shapes of the forward kernel.
#pragma once

namespace longstride::kernels::cuda::sm90 {

// A block takes `warpgroups` x 64 queries, each warpgroup its own 64, and streams tiles of `keys` keys through a ring
// of `stages`. `blocks` of them are to fit on a multiprocessor.
struct ForwardTiling {
  int warpgroups, keys, stages, blocks;
  bool overlaps;  // the scores of the next tile are computed while the weights of this one meet its values
  bool turns;     // overlapping warpgroups start their products in turn: one's softmax meets another's products
  // A producer warpgroup gives its registers to the others; without, two threads of the others start the copies.
  bool specialised;
  int producer_registers, consumer_registers;  // when specialised

  constexpr int queries() const { return warpgroups * 64; }
  constexpr int threads() const { return warpgroups * 128 + (specialised ? 128 : 0); }
};

// Few keys for each query (windows, residue classes): bytes, latency and the instructions around the tiles count, so
// there are several small blocks on a multiprocessor, and tiles of 64 keys waste little at the edges.
// Many keys: the tensor cores and the exponentials count. Up to values of 64, two blocks of two warpgroups that share
// nothing keep both busy better than one block of three that take turns, and hide each other's beginning and end. With
// values of 128 the output takes 64 registers: three warpgroups in turn, tiles of 64 keys, 160 registers each.
constexpr ForwardTiling forward_tiling(int value_size, bool few_keys) {
  if (few_keys) {
    if (value_size <= 32) return {2, 64, 4, 3, false, false, false, 0, 0};
    if (value_size <= 64) return {2, 64, 4, 2, true, false, false, 0, 0};
    return {1, 64, 2, 3, true, false, false, 0, 0};
  }
  if (value_size <= 32) return {2, 128, 4, 2, false, false, false, 0, 0};
  if (value_size <= 64) return {2, 128, 2, 2, false, false, false, 0, 0};
  return {3, 64, 4, 1, true, true, true, 32, 160};
}

}  // namespace longstride::kernels::cuda::sm90
