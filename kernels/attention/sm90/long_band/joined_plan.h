// The tasks and the memory of turns over own blocks and summary rows (joined_order.h).
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/attention/sm90/general/geometry.h"
#include "kernels/attention/sm90/long_band/joined_order.h"
#include "kernels/attention/sm90/long_band/long_band_plan.h"

namespace longstride::kernels::cuda::sm90 {

struct JoinedPlan {
  LongBandPlan turns;                             // the band of own blocks, in turns
  RowSet summary;                                 // head 0
  bool in_pieces = false;                         // its tiles are no boxes (general/tile_pieces.h)
  std::int32_t first[Geometry::most_heads] = {};  // per head, of its summary rows in a block

  JoinedOrder order(std::int32_t head = 0) const { return {turns.order(), summary.run, first[head]}; }
  // As many classes side by side as give every GPU block two summary tasks, the long ones, or a few more, so that no
  // group of classes is small. Their sums need not stay in the second-level cache: what one task has added another one
  // fetches soon.
  void lay_out() {
    const std::int32_t tiles = order().query_tiles();
    turns.ring = {.ring = tiles, .tiles = tiles, .most_turns = static_cast<std::uint32_t>(order().most_turns())};
    const std::int64_t lanes = std::max(least_lanes, tiles_in(2 * long_band_blocks, order().summary_tasks()));
    turns.divide(std::max<std::int64_t>(turns.classes / lanes, 1));
  }
};

}  // namespace longstride::kernels::cuda::sm90
