// A term of attention's loops that adds nothing to a score. A term is one struct: the keys that a query sees, what it
// adds to a score and by what it weights its exponential, what it takes from the score's gradient, and its own
// gradients.
#pragma once
#include "kernels/attention/cpu/tiles.h"
#include "kernels/attention/pattern/block_lists.h"
#include "kernels/attention/pattern/row_bounds.h"
#include "kernels/attention/term/labels.h"

namespace longstride::kernels::cpu {

// One class of one part of a pass, clamped by the bounds, of listed blocks.
template <class T>
struct NoTerm {
  static constexpr bool given = false;   // the loops leave out what a term does
  static constexpr bool weighs = false;  // exponentials have no weights, and no probability is dropped
  struct Space {
    Space() = default;
    Space(const Labels&, TileShape, Carver&) {}
  };
  const AttentionPlan& plan;
  const Pass& pass;
  const Part& part;
  RowSet queries, keys;
  BoundsOfHead bounds;
  ListsOfHead listed_keys, listed_queries;

  template <class Args>
  NoTerm(const Args& args, const Pass& in, const Part& one, const WorkUnit& unit, const Space&)
      : plan(*args.plan),
        pass(in),
        part(one),
        queries(rows_within(in.queries, unit.residue, plan.queries)),
        keys(rows_within(one.keys, unit.residue, plan.n)),
        bounds(bounds_of(args.bounds, unit.sequence, unit.head)),
        listed_keys(ListsView::of_queries(args.lists).of(unit.sequence, unit.head)),
        listed_queries(ListsView::of_keys(args.lists).of(unit.sequence, unit.head)) {}

  Interval interval(std::int32_t position) const { return bounds.clamp(part.interval(keys, position), keys, position); }
  // Classes share their tiles, but for bounds, which differ from position to position.
  TileSpan key_tiles(std::int32_t tile) const {
    if (!bounds.given()) return key_tiles_of(part, pass.queries, part.keys, plan.tile, tile);
    return key_tiles_by([&](std::int32_t i) { return interval(i); }, queries, keys, plan.tile, tile);
  }
  TileWalk walk_keys(std::int32_t tile) const {
    return {key_tiles(tile), listed_keys.of_row(tile * plan.tile.queries), plan.tile.keys};
  }
  TileWalk walk_queries(std::int32_t tile) const {
    const TileSpan span =
        bounds.given() ? query_tiles_by([&](std::int32_t i) { return interval(i); }, queries, keys, plan.tile, tile)
                       : query_tiles_of(part, pass.queries, part.keys, plan.tile, tile);
    return {span, listed_queries.of_row(tile * plan.tile.keys), plan.tile.queries};
  }
  const T* weights_of(std::int32_t, std::int64_t) const { return nullptr; }
  const T* content_bias() const { return nullptr; }
};

}  // namespace longstride::kernels::cpu
