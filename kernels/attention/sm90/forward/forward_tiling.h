// Tile shapes of the forward kernel.
#pragma once

namespace longstride::kernels::cuda::sm90 {

// A block has `warpgroups` x 64 queries, 64 per warpgroup, and streams tiles of `keys` keys through a ring of `stages`.
// `blocks` blocks must fit on a multiprocessor.
struct ForwardTiling {
  int warpgroups, keys, stages, blocks;
  bool overlaps = false;  // the scores of the next tile are computed while the weights of this one are applied
  // Overlapping warpgroups start their products in turn: one's softmax overlaps with another's products.
  bool turns = false;
  // A producer warpgroup gives its registers to the others; without, two threads of the others start the copies.
  bool specialised = false;
  int producer_registers = 0, consumer_registers = 0;  // when specialised

  constexpr int queries() const { return warpgroups * 64; }
  constexpr int threads() const { return warpgroups * 128 + (specialised ? 128 : 0); }
};

// How many keys a query has: fewer than 385, at least 385, or thousands, next to which the ends of blocks matter
// little; or those of listed blocks (pattern/block_lists.h).
enum class KeysPerQuery { few, many, thousands, listed };

// Few keys per query (windows, residue classes): bytes, latency and the instructions around the tiles dominate, so
// several small blocks run on a multiprocessor, and tiles of 64 keys waste little at the edges. Many keys: the tensor
// cores and the exponentials dominate. With values of at most 64, two independent blocks of two warpgroups hide each
// other's beginning and end. With thousands of keys these are rare, and one block is faster: three warpgroups in turn,
// that compute the scores of the next tile during the softmax of this one, and that copy nothing themselves. With
// values of 128 the output takes 64 registers: the same with tiles of 64 keys, for any number of keys. A list is that
// of 64 queries: a block of one warpgroup needs each of its tiles, and other blocks hide its beginning and end and, as
// the second-level cache is what binds, its wait for keys.
constexpr ForwardTiling forward_tiling(int value_size, KeysPerQuery count) {
  if (count == KeysPerQuery::listed) {
    if (value_size <= 64) return {.warpgroups = 1, .keys = 64, .stages = 2, .blocks = 5};
    return {.warpgroups = 1, .keys = 64, .stages = 2, .blocks = 2, .overlaps = true};
  }
  if (count == KeysPerQuery::few) {
    if (value_size <= 32) return {.warpgroups = 2, .keys = 64, .stages = 4, .blocks = 3};
    if (value_size <= 64) return {.warpgroups = 2, .keys = 64, .stages = 4, .blocks = 2, .overlaps = true};
  }
  if (count == KeysPerQuery::many) {
    if (value_size <= 32) return {.warpgroups = 2, .keys = 128, .stages = 4, .blocks = 2};
    if (value_size <= 64) return {.warpgroups = 2, .keys = 128, .stages = 2, .blocks = 2};
  }
  return {.warpgroups = 3,
          .keys = value_size <= 64 ? 128 : 64,
          .stages = value_size <= 64 ? 4 : 3,
          .blocks = 1,
          .overlaps = true,
          .turns = true,
          .specialised = true,
          .producer_registers = 32,
          .consumer_registers = 160};
}

// With labels (term/labels_sm90.cuh): the block of thousands with tiles of 64 keys, whose registers have room for a
// row's numbers.
constexpr ForwardTiling forward_tiling_of_labels(int value_size) {
  ForwardTiling tiling = forward_tiling(value_size, KeysPerQuery::thousands);
  tiling.keys = 64;
  return tiling;
}

}  // namespace longstride::kernels::cuda::sm90
