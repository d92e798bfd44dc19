// The tiles that a block computes, and the addresses of their rows.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/attention/pattern/tile_span.h"
#include "kernels/attention/portable/portable.h"

namespace longstride::kernels::cuda::portable {

// Every block has this many threads.
inline constexpr int block_threads = 128;
inline constexpr int warp_threads = 32;

// The work of a block of the grid (segments x tiles, heads of the group, batch). With `backwards` the last tiles come
// first: causal rows have the most keys at the end of a sequence, causal keys the most rows at its beginning.
struct Unit {
  std::int32_t batch, head, segment, tile;
  const Job* job;
};
__device__ inline Unit unit_of(const Group& group, std::int32_t tiles, const Job& job, bool backwards) {
  const auto x = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t tile = x / job.segments;
  return {static_cast<std::int32_t>(blockIdx.z), group.head[blockIdx.y], x % job.segments,
          backwards ? tiles - 1 - tile : tile, &job};
}
// The grid, large enough for the head with the most tiles.
enum class Side { queries, keys };
inline dim3 grid_of(const Call& call, std::int32_t rows, Side side) {
  std::int32_t most = 0;
  for (std::int32_t j = 0; j < call.group.jobs; ++j) {
    const Job& job = call.group.job[j];
    const std::int32_t length = side == Side::queries ? job.queries.length : job.part[0].keys.length;
    most = std::max(most, job.segments * tiles_in(length, rows));
  }
  return {static_cast<unsigned>(most), static_cast<unsigned>(call.group.heads), static_cast<unsigned>(call.batch)};
}
__device__ inline const Job& job_of(const Group& group) { return group.job[group.job_of[blockIdx.y]]; }

// A stream's positions without an integer division: entries are below 2^24, so floats represent them exactly.
struct Places {
  Stream stream;
  float per_run;

  __device__ explicit Places(const Stream& s) : stream(s), per_run(1.0f / static_cast<float>(s.run)) {}
  __device__ std::int32_t at(std::int32_t entry) const {
    if (stream.run >= stream.length) return stream.base + entry;
    auto period = static_cast<std::int32_t>(static_cast<float>(entry) * per_run);
    std::int32_t rest = entry - period * stream.run;
    if (rest < 0) {
      --period;
      rest += stream.run;
    } else if (rest >= stream.run) {
      ++period;
      rest -= stream.run;
    }
    return stream.base + period * stream.period + rest;
  }
};

// The rows of one sequence and head.
template <class T>
struct Rows {
  T* data;
  std::int64_t stride;

  __device__ Rows(const Matrix& m, const Unit& unit)
      : data(static_cast<T*>(m.data) + unit.batch * m.batch + unit.head * m.head), stride(m.row) {}
  __device__ T* at(std::int32_t position) const { return data + position * stride; }
};
__device__ inline std::int64_t lse_row(const Call& call, const Unit& unit) {
  return (static_cast<std::int64_t>(unit.batch) * call.heads + unit.head) * call.group.n;
}

// One tile: entries [begin, begin + tile) of the stream of a part. A masked tile holds pairs that are not allowed, or
// entries beyond the stream.
struct Step {
  std::int32_t part, begin;
  bool masked;
};

// The key tiles of a query tile, part after part.
class KeyWalk {
 public:
  __device__ KeyWalk(const Job& job, const Unit& unit, const Stream& queries, std::int32_t n, TileShape tile)
      : job_(job), unit_(unit), queries_(queries), n_(n), tile_(tile) {
    seek();
  }
  __device__ bool more() const { return part_ < job_.parts; }
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
    for (; part_ < job_.parts; ++part_) {
      const Stream keys = stream_within(job_.part[part_].keys, unit_.segment, n_);
      span_ = key_tiles_of(job_.part[part_], queries_, keys, tile_, unit_.tile);
      at_ = span_.begin;
      length_ = keys.length;
      if (at_ < span_.end) return;
    }
  }

  const Job& job_;
  Unit unit_;
  Stream queries_;
  std::int32_t n_;
  TileShape tile_;
  std::int32_t part_ = 0, at_ = 0, length_ = 0;
  TileSpan span_;
};

// The first query tile whose span's `number`-th end (end, full_end, full_begin, begin) is above `index`. A warp tests
// 32 candidates at a time.
__device__ inline std::int32_t first_beyond(const Part& part, const Stream& queries, const Stream& keys, TileShape tile,
                                            std::int32_t index, int number) {
  const auto lane = static_cast<std::int32_t>(threadIdx.x % warp_threads);
  std::int32_t low = 0, high = tiles_in(queries.length, tile.queries);
  while (low < high) {
    const std::int32_t step = (high - low + warp_threads - 1) / warp_threads, candidate = low + lane * step;
    bool beyond = false;
    if (candidate < high) {
      const TileSpan span = key_tiles_of(part, queries, keys, tile, candidate);
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
__device__ inline TileSpan query_tiles_by_block(const Part& part, const Stream& queries, const Stream& keys,
                                                TileShape tile, std::int32_t index, std::int32_t* shared) {
  const auto warp = static_cast<int>(threadIdx.x / warp_threads);
  const std::int32_t found = first_beyond(part, queries, keys, tile, index, warp);
  if (threadIdx.x % warp_threads == 0) shared[warp] = found;
  __syncthreads();
  return {shared[0], shared[1], shared[2], shared[3]};
}

}  // namespace longstride::kernels::cuda::portable
