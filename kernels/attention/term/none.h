// A term of attention's loops that adds nothing to a score. A term is one struct: the keys that a query sees, what it
// adds to a score and by what it weights its exponential, what it takes from the score's gradient, and its own
// gradients.
#pragma once
#include "kernels/attention/pattern/row_bounds.h"
#include "kernels/attention/pattern/tile_span.h"

namespace longstride::kernels {

// One class of one part of a pass, clamped by the bounds.
template <class T>
struct NoTerm {
  static constexpr bool given = false;  // the loops leave out what a term does
  const AttentionPlan& plan;
  const Pass& pass;
  const Part& part;
  RowSet queries, keys;
  BoundsOfHead bounds;

  NoTerm(const AttentionPlan& all, const Pass& in, const Part& one, std::int32_t residue, const BoundsOfHead& clamp)
      : plan(all),
        pass(in),
        part(one),
        queries(rows_within(in.queries, residue, all.queries)),
        keys(rows_within(one.keys, residue, all.n)),
        bounds(clamp) {}

  Interval interval(std::int32_t position) const { return bounds.clamp(part.interval(keys, position), keys, position); }
  // Classes share their tiles, but for bounds, which differ from position to position.
  TileSpan key_tiles(std::int32_t tile) const {
    if (!bounds.given()) return key_tiles_of(part, pass.queries, part.keys, plan.tile, tile);
    return key_tiles_by([&](std::int32_t i) { return interval(i); }, queries, keys, plan.tile, tile);
  }
  TileSpan query_tiles(std::int32_t tile) const {
    if (!bounds.given()) return query_tiles_of(part, pass.queries, part.keys, plan.tile, tile);
    return query_tiles_by([&](std::int32_t i) { return interval(i); }, queries, keys, plan.tile, tile);
  }
  const T* weights_of(std::int32_t, std::int64_t) const { return nullptr; }
  const T* content_bias() const { return nullptr; }
};

}  // namespace longstride::kernels
