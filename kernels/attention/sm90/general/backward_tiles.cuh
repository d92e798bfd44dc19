// The pairs of rows of the backward kernels. A block owns a tile of one row set; every row of the tile is paired with
// one interval of the other row set, whose ends never decrease from row to row: a query with the keys to which it may
// attend, a key with the queries that may attend to it.
#pragma once
#include <cstdint>

#include "kernels/attention/pattern/tile_span.h"
#include "kernels/attention/sm90/general/backward_problem.h"
#include "kernels/attention/sm90/general/listed_tiles.cuh"
#include "kernels/gpu/lane.cuh"

namespace longstride::kernels::cuda::sm90 {

// As RowSet::count_below, without a division in natural order.
__device__ inline std::int32_t entries_below(const RowSet& set, std::int32_t p) {
  if (set.run >= set.period) return min(max(p - set.base, 0), set.length);
  return set.count_below(p);
}
__device__ inline std::int32_t position_at(const RowSet& set, std::int32_t entry) {
  return set.run >= set.period ? set.base + entry : set.position(entry);
}

// The queries, of the rows `within`, that may attend to the key at position p: high(i) >= p from some i on, low(i) <= p
// up to some i.
__device__ inline Interval queries_of(const Part& part, const RowSet& queries, std::int32_t p, Interval within) {
  std::int32_t from = p + part.high.back, beyond = p + part.low.back;
  if (part.high.block > 0) from = (from + part.high.block - 1) / part.high.block * part.high.block;
  if (beyond < 0) return {};
  beyond = part.low.block > 0 ? (beyond / part.low.block + 1) * part.low.block : beyond + 1;
  return {entries_below(queries, max(from, within.begin)), entries_below(queries, min(beyond, within.end))};
}

// The work of a block.
struct BackwardTask {
  const PassGeometry* pass;
  std::int32_t pass_index, head, sequence, residue;
  std::int32_t begin;  // first row of its own, in entries of the row set `own`
  RowSet own;

  __device__ RowSet class_of(const RowSet& set, std::int32_t n) const {
    return pass->classes == 1 ? set : rows_within(set, residue, n);
  }

  // Longest rows first: the last queries, the first keys. Consecutive blocks have neighbouring heads, whose rows are
  // neighbours in memory. False if there is nothing to do.
  template <Side side>
  __device__ bool find(const BackwardProblem& problem, std::int32_t rows, std::uint32_t index) {
    const Geometry& geometry = problem.geometry;
    head = static_cast<std::int32_t>(index % geometry.heads);
    index /= geometry.heads;
    pass_index = geometry.pass_of[head];
    if (pass_index == Geometry::none) return false;
    pass = &geometry.pass[pass_index];
    if (side == Side::keys && problem.part >= pass->parts) return false;
    const std::uint32_t classes = pass->classes, batch = problem.batch;
    residue = static_cast<std::int32_t>(index % classes);
    index /= classes;
    sequence = static_cast<std::int32_t>(index % batch);
    index /= batch;
    const RowSet& whole = side == Side::queries ? pass->queries : pass->part[problem.part].keys;
    const std::int32_t tiles = tiles_in(whole.length, rows), tile = static_cast<std::int32_t>(index);
    if (tile >= tiles) return false;
    begin = (side == Side::queries ? tiles - 1 - tile : tile) * rows;
    own = class_of(whole, geometry.n);
    return begin < own.length;
  }
};

// The interval of each of a block's own rows in every part; rows beyond the row set have the last row's.
template <Side side, int Rows>
struct MeetingRows {
  static constexpr int most_parts = side == Side::queries ? PassGeometry::most_parts : 1;
  Interval row[most_parts][Rows];
  std::int32_t parts;

  // Called by all threads of the block; then __syncthreads.
  template <class Problem>
  __device__ void fill(const Problem& problem, const BackwardTask& task) {
    const std::int32_t n = problem.geometry.n, others = side == Side::keys ? problem.queries() : n;
    const BoundsOfHead bounds = problem.bounds.of(problem.sequence_of(task.sequence), task.head);
    if (threadIdx.x == 0) parts = side == Side::queries ? task.pass->parts : 1;
    for (std::int32_t r = threadIdx.x; r < Rows; r += blockDim.x) {
      const std::int32_t position = position_at(task.own, min(task.begin + r, task.own.length - 1));
      const Interval within = bounds.rows(position, others);
      if constexpr (side == Side::keys)
        row[0][r] = problem.share_of(interval(task, problem.part, n, position, within), task.sequence);
      for (std::int32_t p = 0; side == Side::queries && p < task.pass->parts; ++p)
        row[p][r] = problem.share_of(interval(task, p, n, position, within), task.sequence);
    }
  }

  // By the loading thread, before the block's threads meet.
  template <int Stages>
  __device__ static void enter(ListedTiles<Stages>& tiles, const BackwardProblemOfLists& problem,
                               const BackwardTask& task, std::int32_t step) {
    const std::int32_t n = problem.geometry.n;
    const BoundsOfHead bounds = problem.bounds.of(task.sequence, task.head);
    const auto of_row = [&](std::int32_t r) {
      const std::int32_t position = position_at(task.own, min(task.begin + r, task.own.length - 1));
      return interval(task, 0, n, position, bounds.rows(position, n));
    };
    const BlockList list = problem.lists.of(task.sequence, task.head).of_row(task.begin);
    tiles.enter(list, of_row(0), of_row(Rows - 1), step);
  }

 private:
  // The rows `within` with which the row at a position is paired in the p-th part.
  __device__ static Interval interval(const BackwardTask& task, std::int32_t p, std::int32_t n, std::int32_t position,
                                      const Interval& within) {
    const Part& part = task.pass->part[p];
    if constexpr (side == Side::keys) return queries_of(part, task.class_of(task.pass->queries, n), position, within);
    const RowSet keys = task.class_of(part.keys, n);
    return {entries_below(keys, max(part.low.of(position), within.begin)),
            entries_below(keys, min(part.high.of(position) + 1, within.end))};
  }
};

// The streamed tiles that a block's rows need, part by part.
template <class Rows, int Count, int Step>
class TileIterator {
 public:
  template <class Shared>
  __device__ explicit TileIterator(const Shared& control) : rows_(control.meeting) {}

  // Moves to the next tile; false after the last.
  __device__ bool next() {
    entered_ = false;
    ++tile_;
    while (tile_ >= end_) {
      if (++part_ >= rows_.parts) return false;
      tile_ = rows_.row[part_][0].begin / Step;
      end_ = tiles_in(rows_.row[part_][Count - 1].end, Step);
      entered_ = true;
    }
    return true;
  }

  __device__ bool entered() const { return entered_; }  // the tile is the first of its part
  __device__ std::int32_t part() const { return part_; }
  __device__ std::int32_t begin() const { return tile_ * Step; }  // entry of the row set

 private:
  const Rows& rows_;
  std::int32_t part_ = -1, tile_ = 0, end_ = 0;
  bool entered_ = false;
};

// The same of a list, which restricts the only part.
template <int Stages, int Step>
class ListIterator {
 public:
  template <class Shared>
  __device__ explicit ListIterator(const Shared& control) : tiles_(control.list) {}

  __device__ bool next() {
    if (entered_ = tile_ < 0; entered_)
      walk_ = tiles_.walk;
    else
      walk_.advance();
    tile_ = walk_.tile();
    return walk_.more();
  }
  __device__ bool entered() const { return entered_; }
  __device__ std::int32_t part() const { return 0; }
  __device__ std::int32_t begin() const { return tile_ * Step; }

 private:
  const ListedTiles<Stages>& tiles_;
  TileWalk walk_;
  std::int32_t tile_ = -1;
  bool entered_ = false;
};

// A part's streamed tiles: the block loads [begin, end), the warpgroup's own rows need [needed_begin, needed_end),
// and every row of the warp is paired with all rows of [full_begin, full_end).
template <int Rows, int Step>
struct TileRange {
  std::int32_t begin, needed_begin, needed_end, end, full_begin, full_end;

  __device__ TileRange(const Interval (&row)[Rows], bool some, int warp) {
    const int first = warp / 4 * 64;
    begin = uniform(row[0].begin / Step);
    end = uniform(max(begin, tiles_in(row[Rows - 1].end, Step)));
    needed_begin = uniform(some ? min(max(row[first].begin / Step, begin), end) : end);
    needed_end = uniform(some ? max(min(tiles_in(row[first + 63].end, Step), end), needed_begin) : end);
    full_begin = uniform(tiles_in(row[warp * 16 + 15].begin, Step));
    full_end = uniform(row[warp * 16].end / Step);
  }
};

}  // namespace longstride::kernels::cuda::sm90
