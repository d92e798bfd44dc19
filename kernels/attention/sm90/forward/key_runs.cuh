// The key tiles that a warpgroup of the forward kernel needs, in the order in which they come (key_tiles.cuh), as runs:
// tiles that follow one another.
#pragma once
#include <cstdint>

#include "kernels/attention/pattern/tile_span.h"
#include "kernels/attention/sm90/forward/forward_task.cuh"
#include "kernels/attention/sm90/forward/key_tiles.cuh"
#include "kernels/gpu/lane.cuh"

namespace longstride::kernels::cuda::sm90 {

// A key tile, and what a warp's rows see of it. A warpgroup has 64 of the block's rows, each of its warps 16.
template <int Queries, int Keys>
class SeenTile {
 public:
  // True if the warp's rows see the whole tile.
  __device__ bool is_full() const { return tile_ >= full_ && tile_ < full_end_; }
  // The thread's two rows, in keys from the tile's first.
  struct Allowed {
    Interval row[2];
  };
  __device__ Allowed allowed() const {
    const Interval* row = rows_.row[part_] + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    const std::int32_t begin = tile_ * Keys;
    return {{{row[0].begin - begin, row[0].end - begin}, {row[8].begin - begin, row[8].end - begin}}};
  }

 protected:
  __device__ explicit SeenTile(const RowIntervals<Queries>& rows) : rows_(rows) {}

  // Equal in all lanes, and said so, so that loops, slots and the descriptors of tiles are in uniform registers.
  __device__ void enter_part(std::int32_t part) {
    const int warp = threadIdx.x / 32 * 16;
    part_ = part;
    full_ = uniform(tiles_in(rows_.row[part][warp + 15].begin, Keys));
    full_end_ = uniform(rows_.row[part][warp].end / Keys);
  }

  const RowIntervals<Queries>& rows_;
  std::int32_t part_ = -1, tile_ = 0;
  std::int32_t full_ = 0, full_end_ = 0;  // tiles of the part that all of the warp's rows see
};

template <int Queries, int Keys>
class KeyRuns : public SeenTile<Queries, Keys> {
  using Seen = SeenTile<Queries, Keys>;
  using Seen::part_, Seen::rows_, Seen::tile_;

 public:
  __device__ KeyRuns(const RowIntervals<Queries>& rows, const ForwardTask& task)
      : Seen(rows), task_(task), parts_(uniform(task.parts)) {}

  // Moves to the first tile of the next run; false if there is none. Calls `let_go` for every tile before it.
  template <class F>
  __device__ bool start(const F& let_go) {
    for (;;) {
      const bool found = first_ < last_;
      for (const std::int32_t until = found ? first_ : end_; tile_ < until; ++tile_) let_go();
      if (found) return true;
      if (part_ + 1 == parts_) return false;
      enter();
    }
  }
  // Moves to the next tile if it is of the same run.
  __device__ bool next() {
    if (++tile_ < last_) return true;
    first_ = last_ = 0;
    if (tile_ < end_ || part_ + 1 == parts_) return false;
    enter();
    return first_ < last_ && first_ == tile_;
  }

 private:
  // The next part.
  __device__ void enter() {
    Seen::enter_part(part_ + 1);
    const Interval* row = rows_.row[part_];
    const int warpgroup = threadIdx.x / 128 * 64;
    const bool has_rows = task_.begin + warpgroup < task_.length;
    tile_ = uniform(row[0].begin / Keys);
    end_ = uniform(tiles_in(row[Queries - 1].end, Keys));
    first_ = max(uniform(row[warpgroup].begin / Keys), tile_);
    last_ = min(uniform(has_rows ? tiles_in(row[warpgroup + 63].end, Keys) : 0), end_);
  }

  const ForwardTask& task_;
  const std::int32_t parts_;
  std::int32_t end_ = 0;               // of the part's tiles
  std::int32_t first_ = 0, last_ = 0;  // those of the part that the warpgroup needs: from first_ to before last_
};

}  // namespace longstride::kernels::cuda::sm90
