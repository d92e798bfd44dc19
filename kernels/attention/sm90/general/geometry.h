// The passes of an attention in the form in which kernels receive them: by value, as parameters. Heads with equal
// passes share one. Tiles follow by closed form (tile_span.h); nothing is copied to the device.
//
// A tile of summary rows is one box if their run c divides the tile or is a multiple of it (row_maps.h). The rows of
// another run are read with the rows after them, in runs of the next power of two. The rows from c on in every such run
// are *holes*: they have zero weight as keys, and their gradients are not stored.
#pragma once
#include <bit>
#include <cstdint>

#include "kernels/attention/pattern/plan.h"

namespace longstride::kernels::cuda::sm90 {

struct PassGeometry {
  static constexpr int most_parts = 3;  // own block, summary rows, and the column of summary_inclusive
  RowSet queries;                       // of segment 0
  std::int32_t segments = 0;
  std::int32_t parts = 0;
  Part part[most_parts];
};

// Whether tiles of `rows` entries are boxes: always in natural order and in residue classes.
constexpr bool has_boxes(const RowSet& set, std::int32_t rows) {
  return set.run >= set.period || rows % set.run == 0 || set.run % rows == 0;
}
// The row set whose tiles of 64 and of 128 rows are boxes and which holds `set`: the same, or one with longer runs.
// They may not be longer than the period, or rows would not be in order: the run is then 0.
constexpr RowSet boxed(RowSet set) {
  if (has_boxes(set, 64) && has_boxes(set, 128)) return set;
  const auto run = static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(set.run)));
  if (set.length > 0) set.length = (set.length - 1) / set.run * run + (set.length - 1) % set.run + 1;
  set.run = run <= set.period ? run : 0;
  return set;
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

// How many rows of each run are keys, per pass and part; the others are holes. Kernels without holes do not receive it.
struct RunWidths {
  bool any_holes = false;
  std::int32_t of[Geometry::most_passes][PassGeometry::most_parts] = {};
};

// The number-th pass of every head of a plan, from 0. False if anything exceeds its limit or has no boxes.
inline bool geometry_of(const AttentionPlan& plan, int number, Geometry& out, RunWidths& widths) {
  out = Geometry{};
  widths = RunWidths{};
  out.n = plan.n;
  out.heads = static_cast<std::int32_t>(plan.heads.size());
  if (out.heads > Geometry::most_heads) return false;
  std::int32_t index[Geometry::most_passes];  // of each pass in the plan
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
      out.pass[p].queries = pass.queries;
      out.pass[p].segments = pass.segments;
      out.pass[p].parts = pass.parts;
      for (std::int32_t i = 0; i < pass.parts; ++i) {
        Part& part = out.pass[p].part[i] = plan.parts_of(pass)[static_cast<std::size_t>(i)];
        widths.of[p][i] = part.keys.run;
        part.keys = boxed(part.keys);
        if (part.keys.run == 0) return false;
        widths.any_holes |= part.keys.run != widths.of[p][i];
      }
    }
    out.pass_of[head] = static_cast<std::uint8_t>(p);
  }
  return true;
}

inline bool geometry_of(const AttentionPlan& plan, int number, Geometry& out) {
  RunWidths widths;
  return geometry_of(plan, number, out, widths);
}

// The largest number of passes of a head.
inline int passes_in(const AttentionPlan& plan) {
  int most = 0;
  for (const HeadPlan& head : plan.heads) most = head.passes > most ? head.passes : most;
  return most;
}

}  // namespace longstride::kernels::cuda::sm90
