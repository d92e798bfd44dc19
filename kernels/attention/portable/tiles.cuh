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

// The sequence and head of a block, and the number of its tile of queries or keys.
struct WorkUnit {
  std::int32_t batch, head, tile, key_head;

  __device__ WorkUnit of_keys() const { return {batch, key_head, tile, key_head}; }
};
enum class Side { queries, keys };

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

// The key tiles of a tile of queries. `seen` is of a term: `keys`, and the interval of them that the query row at a
// position sees.
template <class Seen>
__device__ inline TileSpan key_tiles_of(const Seen& seen, const RowSet& queries, TileShape tile, std::int32_t index) {
  return key_tiles_by([&](std::int32_t i) { return seen.interval(i); }, queries, seen.keys, tile, index);
}

// A term's Tiles in a kernel with `Stages` tiles of `Queries` rows of queries, with heads of up to `Key` elements.
// `Skew`: for gradients of queries.
template <class Term, class T, int Key, int Queries, int Stages, bool Skew>
struct TilesOf;

// The pairs of a term in the kernels for f32, one at a time.
template <class Term>
class PairsOf;

// One tile: entries [begin, begin + tile) of the row set of a part. A masked tile holds pairs that are not allowed, or
// entries beyond the row set.
struct Step {
  std::int32_t part, begin;
  bool masked;
};

// The key tiles of a query tile, part after part.
template <class Term>
class KeyTiles {
 public:
  __device__ KeyTiles(const Term& term, TileShape tile) : term_(term), tile_(tile) { seek(); }
  __device__ bool more() const { return part_ < term_.parts(); }
  __device__ Step step() const {
    const std::int32_t begin = walk_.tile() * tile_.keys;
    return {part_, begin, !walk_.full() || begin + tile_.keys > length_};
  }
  __device__ void advance() {
    walk_.advance();
    if (walk_.more()) return;
    ++part_;
    seek();
  }

 private:
  __device__ void seek() {
    for (; part_ < term_.parts(); ++part_) {
      const auto seen = term_.seen(part_);
      walk_ = {key_tiles_of(seen, term_.queries, tile_, term_.unit.tile), term_.listed(tile_.queries), tile_.keys};
      length_ = seen.keys.length;
      if (walk_.more()) return;
    }
  }

  const Term& term_;
  TileShape tile_;
  std::int32_t part_ = 0, length_ = 0;
  TileWalk walk_;
};

// The first query tile whose span's `number`-th end (end, full_end, full_begin, begin) is above `index`. A warp tests
// 32 candidates at a time.
template <class Seen>
__device__ inline std::int32_t first_beyond(const Seen& seen, const RowSet& queries, TileShape tile, std::int32_t index,
                                            int number) {
  const auto lane = static_cast<std::int32_t>(threadIdx.x % warp_threads);
  std::int32_t low = 0, high = tiles_in(queries.length, tile.queries);
  while (low < high) {
    const std::int32_t step = (high - low + warp_threads - 1) / warp_threads, candidate = low + lane * step;
    bool beyond = false;
    if (candidate < high) {
      const TileSpan span = key_tiles_of(seen, queries, tile, candidate);
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

// The query tiles of the block's key tile, as query_tiles_of of the part `seen`. Called by all four warps of a block;
// `shared` has room for four numbers.
template <class Term, class Seen>
__device__ inline TileWalk query_tiles_by_block(const Term& term, const Seen& seen, TileShape tile,
                                                std::int32_t* shared) {
  const auto warp = static_cast<int>(threadIdx.x / warp_threads);
  const std::int32_t found = first_beyond(seen, term.queries, tile, term.unit.tile, warp);
  if (threadIdx.x % warp_threads == 0) shared[warp] = found;
  __syncthreads();
  return {{shared[0], shared[1], shared[2], shared[3]}, term.listed(tile.keys), tile.queries};
}

}  // namespace longstride::kernels::cuda::portable
