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
class KeysOfList : public SeenTile<Queries, Keys> {
 public:
  __device__ KeysOfList(const RowIntervals<Queries>& rows, const ListedTiles<Stages>& list)
      : SeenTile<Queries, Keys>(rows), list_(list), more_(list.some) {
    this->enter_part(0);
  }

  template <class F>
  __device__ bool start(const F&) const {
    return more_;
  }
  __device__ bool next() const { return more_; }
  // Once for every tile.
  __device__ void read(int slot) { this->tile_ = list_.read(slot, more_); }

 private:
  const ListedTiles<Stages>& list_;
  bool more_;
};

}  // namespace longstride::kernels::cuda::sm90
