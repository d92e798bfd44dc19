// Tile shapes of the backward kernels.
#pragma once

namespace longstride::kernels::cuda::sm90 {

// The two kernels share a skeleton. A block owns 64 rows per warpgroup and streams tiles past them:
//   queries: owns rows of q and dO, streams k and v, yields dQ
//   keys:    owns rows of k and v, streams q and dO, yields dK and dV
enum class Side { queries, keys };

// `step` rows per streamed tile, `stages` tiles in the ring, `blocks` per multiprocessor. The owned rows are the left
// operands of the first two products, from registers where there is room. If consumer_registers is set, a producer
// warpgroup gives its registers to the others; otherwise the producer is one warp.
struct BackwardTiling {
  int warpgroups, step, stages, blocks;
  bool key_sized_in_registers, value_sized_in_registers;  // q and dO, or k and v
  int producer_registers, consumer_registers;

  constexpr int rows() const { return warpgroups * 64; }
  constexpr int threads() const { return warpgroups * 128 + (consumer_registers > 0 ? 128 : 32); }
  // The warpgroups' requests add up to the registers of the launch; requesting more would deadlock.
  constexpr bool has_registers() const {
    return producer_registers + warpgroups * consumer_registers <= (warpgroups + 1) * (65536 / threads() / 8 * 8);
  }
};

constexpr BackwardTiling backward_tiling(Side side, int key_size, int value_size) {
  if (value_size <= 32) return {1, 32, 4, 3, false, false, 0, 0};
  if (side == Side::queries) {
    if (value_size <= 64) return {3, 64, 4, 1, false, false, 24, 160};
    if (key_size <= 64) return {2, 64, 4, 1, true, false, 40, 232};
    return {2, 64, 3, 1, false, false, 40, 232};
  }
  if (value_size <= 64) return {2, 64, 4, 1, true, true, 40, 232};
  if (key_size <= 64) return {2, 64, 4, 1, false, false, 40, 232};
  return {2, 32, 3, 1, false, false, 40, 232};  // dK and dV take 128 registers
}

}  // namespace longstride::kernels::cuda::sm90
