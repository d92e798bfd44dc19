// Which attentions take turns over own blocks and summary rows (joined_order.h), and how much memory that takes. Needs
// no CUDA.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention/joined_part.h"
#include "kernels/attention/sm90/general/row_set_kinds.h"
#include "kernels/attention/sm90/long_band/joined_order.h"
#include "kernels/attention/sm90/long_band/long_band_plan.h"

namespace longstride::kernels::cuda::sm90 {

struct JoinedPlan {
  LongBandPlan turns;                             // the band of own blocks, in turns
  RowSet summary;                                 // of head 0
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
  std::size_t scratch_bytes() const { return turns.scratch_bytes(); }
};

// Whether a pass is own blocks and summary rows of earlier ones.
inline bool is_joined(const PassGeometry& pass, std::int32_t n) {
  if (pass.parts != 2 || pass.classes != 1) return false;
  const Part &block = pass.part[0], &rest = pass.part[1];
  const RowSet& rows = rest.keys;
  const std::int32_t l = block.low.block;
  return continues(rest, block) && block.low.back == 0 && l > 0 && is_summary(rows) && rows.period == l &&
         rows.base + rows.run <= l && rest.low.back >= n && n >= l;
}

// False for other patterns, for heads that find_long_band refuses, and if heads have several widths.
inline bool find_joined(const AttentionBackwardArgs& args, JoinedPlan& plan) {
  Geometry geometry;
  if (padded_head(args) == 0 || passes_in(*args.plan) != 1 || !geometry_of(*args.plan, 0, geometry)) return false;
  plan = {};
  for (std::int32_t p = 0; p < geometry.passes; ++p) {
    if (!is_joined(geometry.pass[p], geometry.n)) return false;
    if (!RowSetKinds::same(geometry.pass[p].part[1].keys, geometry.pass[0].part[1].keys)) return false;
  }
  for (std::int32_t head = 0; head < geometry.heads; ++head)
    plan.first[head] = geometry.pass[geometry.pass_of[head]].part[1].keys.base;
  plan.summary = geometry.pass[0].part[1].keys;
  plan.in_pieces = needs_pieces(geometry);
  BandPlan& band = plan.turns.band;
  band.set = geometry.pass[0].queries;
  band.shape = {.window = 0, .block = geometry.pass[0].part[0].low.block};
  band.n = geometry.n;
  band.classes = 1;
  band.heads = geometry.heads;
  plan.turns.classes = args.q.size(0) * geometry.heads;
  plan.turns.in_turns = true;
  // Pieces need rows of 128 bytes (general/load_pieces.cuh).
  plan.turns.head = plan.in_pieces ? std::max(padded_head(args), 64) : padded_head(args);
  plan.lay_out();
  return true;
}

}  // namespace longstride::kernels::cuda::sm90
