// The passes of an attention in the form in which kernels receive them: by value, as parameters. Heads with equal
// passes share one. Tiles follow by closed form (tile_span.h); nothing is copied to the device.
#pragma once
#include <cstdint>

#include "kernels/attention/pattern/plan.h"

namespace longstride::kernels::cuda::sm90 {

using PassGeometry = PassArgs<3>;  // own block, summary rows, and the column of summary_inclusive

// True if every tile of 64 or of 128 summary rows is one box (row_maps.h), as tiles in natural order and of residue
// classes always are. Tiles are no boxes if their run neither divides a tile nor is a multiple of one, nor if the last
// query sees rows of a period that the sequence ends within. Such tiles are read in pieces (tile_pieces.h).
constexpr bool is_summary(const RowSet& set) { return set.run > 1 && set.run < set.period; }
constexpr bool has_boxes(const Part& part, std::int32_t n) {
  const RowSet& keys = part.keys;
  if (!is_summary(keys)) return true;
  const bool fits = 128 % keys.run == 0 || keys.run % 128 == 0;
  return fits && part.interval(keys, n - 1).end <= n / keys.period * keys.run;
}

struct Geometry {
  static constexpr int most_passes = 24;
  static constexpr int most_heads = 128;
  static constexpr std::uint8_t none = 255;
  std::int32_t n = 0;  // positions
  std::int32_t heads = 0;
  std::int32_t passes = 0;
  std::uint8_t pass_of[most_heads] = {};  // per head; none: the head has no such pass
  PassGeometry pass[most_passes];
};

// The number-th pass of every head of a plan, from 0. False if anything exceeds its limit.
inline bool geometry_of(const AttentionPlan& plan, int number, Geometry& out) {
  out = Geometry{};
  out.n = plan.n;
  out.heads = static_cast<std::int32_t>(plan.heads.size());
  if (out.heads > Geometry::most_heads) return false;
  std::int32_t index[Geometry::most_passes];  // each pass's number in the plan
  for (std::int32_t head = 0; head < out.heads; ++head) {
    const HeadPlan& h = plan.heads[static_cast<std::size_t>(head)];
    out.pass_of[head] = Geometry::none;
    if (number >= h.passes) continue;
    std::int32_t p = 0;
    while (p < out.passes && index[p] != h.first_pass + number) ++p;
    if (p == out.passes) {
      const Pass& pass = plan.passes[static_cast<std::size_t>(h.first_pass + number)];
      if (p == Geometry::most_passes || pass.parts > PassGeometry::most_parts) return false;
      index[out.passes++] = h.first_pass + number;
      out.pass[p] = {pass.queries, pass.classes, plan.parts_of(pass)};
    }
    out.pass_of[head] = static_cast<std::uint8_t>(p);
  }
  return true;
}

// True if a part of any pass has tiles that are no boxes.
inline bool needs_pieces(const Geometry& geometry) {
  for (std::int32_t p = 0; p < geometry.passes; ++p)
    for (std::int32_t i = 0; i < geometry.pass[p].parts; ++i)
      if (!has_boxes(geometry.pass[p].part[i], geometry.n)) return true;
  return false;
}

// The largest number of passes of a head.
inline int passes_in(const AttentionPlan& plan) {
  int most = 0;
  for (const HeadPlan& head : plan.heads) most = head.passes > most ? head.passes : most;
  return most;
}

}  // namespace longstride::kernels::cuda::sm90
