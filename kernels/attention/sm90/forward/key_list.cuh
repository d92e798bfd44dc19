// The key tiles of a task whose queries have a list of key blocks, by the names of KeyTiles and KeyRuns.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/forward/forward_task.cuh"
#include "kernels/attention/sm90/forward/key_runs.cuh"
#include "kernels/attention/sm90/general/listed_tiles.cuh"

namespace longstride::kernels::cuda::sm90 {

// For the thread that loads. A list restricts one part.
template <int Queries, int Keys, int Stages>
struct KeyList : ListedTiles<Stages> {
  static constexpr std::int32_t part = 0;
  std::int32_t tile;

  __device__ void enter(const ForwardProblemOfLists& problem, const ForwardTask& task) {
    const BoundsOfHead bounds = problem.bounds.of(task.sequence, task.head);
    const auto interval = [&](std::int32_t row) {
      const std::int32_t position = task.position(min(task.begin + row, task.length - 1));
      const Interval within = bounds.rows(position, problem.n);
      return problem.pass[task.pass].part[part].interval(position, task.residue, within);
    };
    const BlockList list = problem.lists.of(task.sequence, task.head).of_row(task.begin);
    ListedTiles<Stages>::enter(list, interval(0), interval(Queries - 1), Keys);
  }
  // Moves to the next tile; false after the last.
  __device__ bool next(const RowIntervals<Queries>&, std::int32_t) {
    if (!this->walk.more()) return false;
    tile = this->walk.tile();
    this->walk.advance();
    return true;
  }
  __device__ std::int32_t begin() const { return tile * Keys; }
};

// For a warpgroup: one run of all tiles.
template <int Queries, int Keys, int Stages>
class KeysOfList {
 public:
  template <class Shared>
  __device__ KeysOfList(const Shared& control, int at)
      : list_(control.producer_tiles), row_(control.rows[at].row[0]), more_(list_.some) {
    const Interval* const of_warp = row_ + threadIdx.x / 32 * 16;
    full_ = uniform(tiles_in(of_warp[15].begin, Keys));
    full_end_ = uniform(of_warp[0].end / Keys);
  }

  template <class F>
  __device__ bool start(const F&) const {
    return more_;
  }
  __device__ bool next() const { return more_; }
  __device__ void read(int slot) { tile_ = list_.read(slot, more_); }

  __device__ bool is_full() const { return tile_ >= full_ && tile_ < full_end_; }
  __device__ TwoRows allowed() const { return two_rows(row_, tile_ * Keys); }

 private:
  const ListedTiles<Stages>& list_;
  const Interval* row_;  // the block's
  bool more_;
  std::int32_t tile_ = 0, full_, full_end_;  // full: tiles that all of the warp's rows see
};

}  // namespace longstride::kernels::cuda::sm90
