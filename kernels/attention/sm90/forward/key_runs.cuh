// The key tiles that a warpgroup of the forward kernel needs, in the order in which they come (key_tiles.cuh), as runs:
// tiles that follow one another.
#pragma once
#include <cstdint>

#include "kernels/attention/pattern/tile_span.h"
#include "kernels/attention/sm90/forward/forward_task.cuh"
#include "kernels/attention/sm90/forward/key_tiles.cuh"
#include "kernels/gpu/lane.cuh"

namespace longstride::kernels::cuda::sm90 {

// The keys that a thread's two rows see, counted from `begin`. A warpgroup has 64 of the block's rows, a warp 16.
struct TwoRows {
  Interval row[2];
};
__device__ inline TwoRows two_rows(const Interval* rows, std::int32_t begin) {
  const Interval* row = rows + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  return {{{row[0].begin - begin, row[0].end - begin}, {row[8].begin - begin, row[8].end - begin}}};
}

template <int Queries, int Keys>
class KeyRuns {
 public:
  // at: which of the tasks in shared memory.
  template <class Shared>
  __device__ KeyRuns(const Shared& control, int at)
      : rows_(control.rows[at]), task_(control.task[at]), parts_(uniform(task_.parts)) {}

  // Moves to the first tile of the next run; false if there is none. Calls `let_go` for every tile before it.
  template <class F>
  __device__ bool start(const F& let_go) {
    for (;;) {
      const bool found = first_ < last_;
      for (const std::int32_t until = found ? first_ : end_; tile_ < until; ++tile_) let_go();
      if (found) return true;
      if (++part_ == parts_) return false;
      enter();
    }
  }
  // Moves to the next tile if it is of the same run.
  __device__ bool next() {
    if (++tile_ < last_) return true;
    first_ = last_ = 0;
    if (tile_ < end_ || part_ + 1 == parts_) return false;
    ++part_;
    enter();
    return first_ < last_ && first_ == tile_;
  }
  // True if the warp's rows see the whole tile.
  __device__ bool is_full() const { return tile_ >= full_ && tile_ < full_end_; }
  __device__ TwoRows allowed() const { return two_rows(rows_.row[part_], tile_ * Keys); }
  __device__ std::int32_t begin() const { return tile_ * Keys; }  // entry of the row set

 private:
  // Equal in all lanes, and said so, so that loops, slots and the descriptors of tiles are in uniform registers.
  __device__ void enter() {
    const Interval* row = rows_.row[part_];
    const int warpgroup = threadIdx.x / 128 * 64, warp = threadIdx.x / 32 * 16;
    const bool has_rows = task_.begin + warpgroup < task_.length;
    tile_ = uniform(row[0].begin / Keys);
    end_ = uniform(tiles_in(row[Queries - 1].end, Keys));
    first_ = max(uniform(row[warpgroup].begin / Keys), tile_);
    last_ = min(uniform(has_rows ? tiles_in(row[warpgroup + 63].end, Keys) : 0), end_);
    full_ = uniform(tiles_in(row[warp + 15].begin, Keys));
    full_end_ = uniform(row[warp].end / Keys);
  }

  const RowIntervals<Queries>& rows_;
  const ForwardTask& task_;
  const std::int32_t parts_;
  std::int32_t part_ = -1;
  std::int32_t tile_ = 0, end_ = 0;       // in the part
  std::int32_t first_ = 0, last_ = 0;     // those of the part that the warpgroup needs: from first_ to before last_
  std::int32_t full_ = 0, full_end_ = 0;  // those that all of the warp's rows see
};

}  // namespace longstride::kernels::cuda::sm90
