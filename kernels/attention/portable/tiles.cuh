// The tiles that a block computes, and the addresses of their rows.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/attention/pattern/tile_span.h"
#include "kernels/attention/portable/portable.h"
#include "kernels/gpu/lane.cuh"

namespace longstride::kernels::cuda::portable {

// Every block has this many threads.
inline constexpr int block_threads = 128;

// The work of a block of the grid (classes x tiles, heads of the group, batch). With `backwards` the last tiles come
// first: causal rows have the most keys at the end of a sequence, causal keys the most rows at its beginning.
struct WorkUnit {
  std::int32_t batch, head, residue, tile;
  const PassArgs* pass;
};
__device__ inline WorkUnit unit_of(const PassGroup& group, std::int32_t tiles, const PassArgs& pass, bool backwards) {
  const auto x = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t tile = x / pass.classes;
  return {static_cast<std::int32_t>(blockIdx.z), group.head[blockIdx.y], x % pass.classes,
          backwards ? tiles - 1 - tile : tile, &pass};
}
// The grid, large enough for the head with the most tiles.
enum class Side { queries, keys };
inline dim3 grid_of(const Call& call, std::int32_t rows, Side side) {
  std::int32_t most = 0;
  for (std::int32_t j = 0; j < call.group.passes; ++j) {
    const PassArgs& pass = call.group.pass[j];
    const std::int32_t length = side == Side::queries ? pass.queries.length : pass.part[0].keys.length;
    most = std::max(most, pass.classes * tiles_in(length, rows));
  }
  return {static_cast<unsigned>(most), static_cast<unsigned>(call.group.heads), static_cast<unsigned>(call.batch)};
}
__device__ inline const PassArgs& pass_of(const PassGroup& group) { return group.pass[group.pass_of[blockIdx.y]]; }

// A row set's positions without an integer division: entries are below 2^24, so floats represent them exactly.
struct EntryPositions {
  RowSet set;
  float per_run;

  __device__ explicit EntryPositions(const RowSet& s) : set(s), per_run(1.0f / static_cast<float>(s.run)) {}
  __device__ std::int32_t at(std::int32_t entry) const {
    if (set.run >= set.length) return set.base + entry;
    auto period = static_cast<std::int32_t>(static_cast<float>(entry) * per_run);
    std::int32_t rest = entry - period * set.run;
    if (rest < 0) {
      --period;
      rest += set.run;
    } else if (rest >= set.run) {
      ++period;
      rest -= set.run;
    }
    return set.base + period * set.period + rest;
  }
};

// The rows of one sequence and head.
template <class T>
struct HeadRows {
  T* data;
  std::int64_t stride;

  __device__ HeadRows(const HeadMatrix& m, const WorkUnit& unit)
      : data(static_cast<T*>(m.data) + unit.batch * m.batch + unit.head * m.head), stride(m.row) {}
  __device__ T* at(std::int32_t position) const { return data + position * stride; }
};
__device__ inline std::int64_t lse_row(const Call& call, const WorkUnit& unit) {
  return (static_cast<std::int64_t>(unit.batch) * call.heads + unit.head) * call.n_q;
}

// The keys that queries see in a part, as entries of those of the unit's class: its own, clamped by the call's bounds.
struct Seen {
  const Part& part;
  RowSet keys;
  BoundsOfHead bounds;

  __device__ Seen(const Call& call, const WorkUnit& unit, const Part& of)
      : part(of), keys(rows_within(of.keys, unit.residue, call.n_k)), bounds(call.bounds.of(unit.batch, unit.head)) {}
  __device__ Interval interval(std::int32_t query) const {
    return bounds.clamp(part.interval(keys, query), keys, query);
  }
  // As key_tiles_of: bounds, too, never decrease.
  __device__ TileSpan key_tiles(const RowSet& queries, TileShape tile, std::int32_t index) const {
    const std::int32_t begin = index * tile.queries, end = min(begin + tile.queries, queries.length);
    if (begin >= end) return {};
    const Interval first = interval(queries.position(begin)), last = interval(queries.position(end - 1));
    const bool to_the_end = first.end == keys.length;  // a ragged last tile counts as full
    return {first.begin / tile.keys, tiles_in(last.begin, tile.keys),
            to_the_end ? tiles_in(first.end, tile.keys) : first.end / tile.keys, tiles_in(last.end, tile.keys)};
  }
};

// One tile: entries [begin, begin + tile) of the row set of a part. A masked tile holds pairs that are not allowed, or
// entries beyond the row set.
struct Step {
  std::int32_t part, begin;
  bool masked;
};

// The key tiles of a query tile, part after part.
class KeyTiles {
 public:
  __device__ KeyTiles(const Call& call, const WorkUnit& unit, const RowSet& queries, TileShape tile)
      : call_(call), unit_(unit), queries_(queries), tile_(tile) {
    seek();
  }
  __device__ bool more() const { return part_ < unit_.pass->parts; }
  __device__ Step step() const {
    const bool full = at_ >= span_.full_begin && at_ < span_.full_end;
    return {part_, at_ * tile_.keys, !full || (at_ + 1) * tile_.keys > length_};
  }
  __device__ void advance() {
    if (++at_ < span_.end) return;
    ++part_;
    seek();
  }

 private:
  __device__ void seek() {
    for (; part_ < unit_.pass->parts; ++part_) {
      const Seen seen(call_, unit_, unit_.pass->part[part_]);
      span_ = seen.key_tiles(queries_, tile_, unit_.tile);
      at_ = span_.begin;
      length_ = seen.keys.length;
      if (at_ < span_.end) return;
    }
  }

  const Call& call_;
  WorkUnit unit_;
  RowSet queries_;
  TileShape tile_;
  std::int32_t part_ = 0, at_ = 0, length_ = 0;
  TileSpan span_;
};

// The first query tile whose span's `number`-th end (end, full_end, full_begin, begin) is above `index`. A warp tests
// 32 candidates at a time.
__device__ inline std::int32_t first_beyond(const Seen& seen, const RowSet& queries, TileShape tile, std::int32_t index,
                                            int number) {
  const auto lane = static_cast<std::int32_t>(threadIdx.x % warp_threads);
  std::int32_t low = 0, high = tiles_in(queries.length, tile.queries);
  while (low < high) {
    const std::int32_t step = (high - low + warp_threads - 1) / warp_threads, candidate = low + lane * step;
    bool beyond = false;
    if (candidate < high) {
      const TileSpan span = seen.key_tiles(queries, tile, candidate);
      const std::int32_t end = number == 0   ? span.end
                               : number == 1 ? span.full_end
                               : number == 2 ? span.full_begin
                                             : span.begin;
      beyond = end > index;
    }
    const std::int32_t first = __ffs(static_cast<int>(__ballot_sync(0xFFFFFFFFu, beyond))) - 1;
    if (first < 0) {
      low += (high - low - 1) / step * step + 1;
    } else {
      high = low + first * step;
      if (first > 0) low = high - step + 1;
    }
  }
  return low;
}

// The query tiles of a key tile, as query_tiles_of. Called by all four warps of a block; `shared` has room for four
// numbers.
__device__ inline TileSpan query_tiles_by_block(const Seen& seen, const RowSet& queries, TileShape tile,
                                                std::int32_t index, std::int32_t* shared) {
  const auto warp = static_cast<int>(threadIdx.x / warp_threads);
  const std::int32_t found = first_beyond(seen, queries, tile, index, warp);
  if (threadIdx.x % warp_threads == 0) shared[warp] = found;
  __syncthreads();
  return {shared[0], shared[1], shared[2], shared[3]};
}

}  // namespace longstride::kernels::cuda::portable
