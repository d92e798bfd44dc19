// Tile shapes of the backward kernels.
#pragma once

namespace longstride::kernels::cuda::sm90 {

// The two kernels share a skeleton. A block owns 64 rows per warpgroup and streams tiles past them:
//   queries: owns rows of q and dO, streams k and v, yields dQ
//   keys:    owns rows of k and v, streams q and dO, yields dK and dV
enum class Side { queries, keys };

// Which tiles are streamed: those of the rows' intervals, as boxes or partly in pieces (tile_pieces.h), or those of
// listed blocks (pattern/block_lists.h).
enum class TileSource { boxes, pieces, lists };

// `step` rows per streamed tile, `stages` tiles in the ring, `blocks` per multiprocessor. The owned rows are the left
// operands of the first two products, from registers where there is room. If consumer_registers is set, a producer
// warpgroup gives its registers to the others; otherwise the producer is one warp.
struct BackwardTiling {
  int warpgroups, step, stages, blocks;
  bool key_sized_in_registers = false, value_sized_in_registers = false;  // q and dO, or k and v
  int producer_registers = 0, consumer_registers = 0;

  constexpr int rows() const { return warpgroups * 64; }
  constexpr int threads() const { return warpgroups * 128 + (consumer_registers > 0 ? 128 : 32); }
  // The warpgroups' requests add up to the registers of the launch; requesting more would deadlock.
  constexpr bool has_registers() const {
    return producer_registers + warpgroups * consumer_registers <=
           (warpgroups + 1) * (65536 / (blocks * threads()) / 8 * 8);
  }
};

// With a producer warpgroup, which keeps what the consumers leave: 24 + 3 x 160 registers of 4 x 128 per thread, or
// 40 + 2 x 232 of 3 x 168; of one of two blocks, 40 + 216 of 2 x 128.
constexpr BackwardTiling with_producer(BackwardTiling tiling) {
  tiling.producer_registers = tiling.warpgroups == 3 ? 24 : 40;
  tiling.consumer_registers = tiling.warpgroups == 3 ? 160 : tiling.warpgroups == 2 ? 232 : 216;
  return tiling;
}

// Copying tiles in pieces takes more registers than copying boxes; three consumers leave 32.
constexpr BackwardTiling for_pieces(BackwardTiling tiling) {
  if (tiling.producer_registers == 24) tiling.producer_registers = 32;
  return tiling;
}

// A list is that of 64 rows: a block of one warpgroup needs each of its tiles, and another one hides its beginning and
// end.
constexpr BackwardTiling tiling_of_lists(Side side, int value_size) {
  if (value_size <= 64)
    return with_producer({.warpgroups = 1,
                          .step = 64,
                          .stages = 4,
                          .blocks = 2,
                          .key_sized_in_registers = true,
                          .value_sized_in_registers = side == Side::queries});
  if (side == Side::queries) return with_producer({.warpgroups = 1, .step = 64, .stages = 2, .blocks = 2});
  return with_producer({.warpgroups = 1, .step = 32, .stages = 4, .blocks = 2});
}

constexpr BackwardTiling tiling_of_intervals(Side side, int key_size, int value_size) {
  if (value_size <= 32) return {.warpgroups = 1, .step = 64, .stages = 4, .blocks = 3};
  if (side == Side::queries) {
    if (value_size <= 64) return with_producer({.warpgroups = 3, .step = 64, .stages = 4, .blocks = 1});
    if (key_size <= 64)
      return with_producer({.warpgroups = 2, .step = 64, .stages = 4, .blocks = 1, .key_sized_in_registers = true});
    return with_producer({.warpgroups = 2, .step = 64, .stages = 3, .blocks = 1});
  }
  if (value_size <= 64)
    return with_producer({.warpgroups = 2,
                          .step = 64,
                          .stages = 4,
                          .blocks = 1,
                          .key_sized_in_registers = true,
                          .value_sized_in_registers = true});
  if (key_size <= 64) return with_producer({.warpgroups = 2, .step = 64, .stages = 4, .blocks = 1});
  // Tiles of 32, because dK and dV take 128 registers.
  return with_producer({.warpgroups = 2, .step = 32, .stages = 3, .blocks = 1});
}

// With labels (term/labels_sm90.cuh), whose numbers take registers.
constexpr BackwardTiling backward_tiling_of_labels(Side side, int key_size, int value_size) {
  BackwardTiling tiling = tiling_of_intervals(side, key_size, value_size);
  if (side == Side::keys) tiling.producer_registers = 56, tiling.consumer_registers = 224;
  return tiling;
}

constexpr BackwardTiling backward_tiling(Side side, int key_size, int value_size, TileSource source) {
  if (source == TileSource::lists) return tiling_of_lists(side, value_size);
  const BackwardTiling tiling = tiling_of_intervals(side, key_size, value_size);
  return source == TileSource::pieces ? for_pieces(tiling) : tiling;
}

}  // namespace longstride::kernels::cuda::sm90
