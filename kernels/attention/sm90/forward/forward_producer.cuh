// The loads of queries, keys and values for a block of the forward kernel.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/forward/forward_layout.cuh"
#include "kernels/attention/sm90/general/load_pieces.cuh"
#include "kernels/gpu/barrier.cuh"
#include "kernels/gpu/lane.cuh"
#include "kernels/gpu/tma.cuh"

namespace longstride::kernels::cuda::sm90 {

__device__ inline const CUtensorMap* map_of(const RowMaps& maps, const TileCorner& corner) {
  return corner.offset < maps.rest ? &maps.longer : &maps.complete;
}

// One thread loads everything but pieces. Its state is in shared memory because in small blocks it has other work too.
template <class Layout>
class ForwardProducer : Layout {
  using Problem = typename Layout::Problem;
  using Shared = typename Layout::Shared;
  using Layout::keys, Layout::stages, Layout::key_boxes, Layout::value_boxes, Layout::k_box, Layout::v_box;
  using Layout::shared_of, Layout::k_at, Layout::v_at, Layout::k_bytes, Layout::v_bytes, Layout::tiling;
  static constexpr int queries = Layout::queries, warpgroups = Layout::warpgroups;
  static constexpr bool Pieces = Layout::pieces;

 public:
  // The threads that start copies. Without a producer warpgroup two consumer threads share the work.
  static constexpr int key_loader = tiling.specialised ? warpgroups * 128 : warpgroups * 128 - 32;
  static constexpr int query_loader = tiling.specialised ? key_loader : 0;
  // True if this thread calls load_keys: the loading thread or, as pieces are many, its warp.
  __device__ static bool loads_keys() {
    return Pieces ? threadIdx.x / 32 == key_loader / 32 : threadIdx.x == key_loader;
  }

  __device__ ForwardProducer(const Problem& problem, char* shared) : problem_(problem), shared_(shared) {}

  __device__ void load_queries(int at = 0) const {
    Shared& control = shared_of(shared_);
    if constexpr (!Layout::listed) control.producer_tiles = {};
    const ForwardTask& task = control.task[at];
    barrier_arrive_expect(&control.q[at], warpgroups * Layout::q_bytes);
    for (int w = 0; w < warpgroups; ++w)
      load(problem_, Layout::queries_of(shared_, at, w), problem_.q[problem_.pass[task.pass].kind], key_boxes,
           Layout::q_box, task, task.head, task.corner(task.begin + w * 64), &control.q[at]);
  }

  // Waits for room and loads the next key tile; false after the last.
  __device__ bool load_keys(int at = 0) const {
    if constexpr (Pieces) return load_keys_by_warp(at);
    Shared& control = shared_of(shared_);
    const ForwardTask& task = control.task[at];
    auto& tiles = control.producer_tiles;
    if (!tiles.next(control.rows[at], task.parts)) return false;
    const PartShape& part = problem_.pass[task.pass].part[tiles.part];
    const TileCorner corner = corner_of(part, tiles.begin(), task.residue);
    const int stage = control.producer_slot.index;
    barrier_wait(&control.empty[stage], control.producer_slot.parity ^ 1);
    if constexpr (Layout::listed) tiles.tell(stage, tiles.tile, tiles.walk.more());
    barrier_arrive_expect(&control.k[stage], k_bytes);
    load(problem_, shared_ + k_at + stage * k_bytes, problem_.k[part.kind], key_boxes, k_box, task, task.key_head,
         corner, &control.k[stage]);
    barrier_arrive_expect(&control.v[stage], v_bytes);
    load(problem_, shared_ + v_at + stage * v_bytes, problem_.v[part.kind], value_boxes, v_box, task, task.key_head,
         corner, &control.v[stage]);
    control.producer_slot.advance(stages);
    return true;
  }

 private:
  // The same, called by a warp: its first lane has the state, all copy pieces.
  __device__ bool load_keys_by_warp(int at) const {
    Shared& control = shared_of(shared_);
    const ForwardTask& task = control.task[at];
    KeyTiles<queries, keys>& tiles = control.producer_tiles;
    const int lane = this_lane();
    const bool found = lane == 0 && tiles.next(control.rows[at], task.parts);
    if (!__any_sync(~0u, found)) return false;
    __syncwarp();
    const PartShape& part = problem_.pass[task.pass].part[tiles.part];
    const auto run = static_cast<std::int32_t>(part.run.value), period = static_cast<std::int32_t>(part.period.value);
    const TilePieces pieces(part.base + task.residue, run, period, tiles.begin(), keys,
                            [&](std::int32_t x) { return part.run.quotient(x); });
    const int stage = control.producer_slot.index;
    char* const k = shared_ + k_at + stage * k_bytes;
    char* const v = shared_ + v_at + stage * v_bytes;
    barrier_wait(&control.empty[stage], control.producer_slot.parity ^ 1);
    if (lane == 0) {
      barrier_arrive_expect(&control.k[stage], k_bytes);
      barrier_arrive_expect(&control.v[stage], v_bytes);
    }
    __syncwarp();
    const RowMaps &of_k = problem_.k[part.kind], &of_v = problem_.v[part.kind];
    if (!part.natural && run > 1) {
      load_pieces(pieces, task.key_head, task.sequence, lane, 32,
                  PieceCopy<key_boxes, k_box>{&of_k.complete, problem_.k_pieces, k, &control.k[stage]},
                  PieceCopy<value_boxes, v_box>{&of_v.complete, problem_.v_pieces, v, &control.v[stage]});
    } else if (lane == 0) {
      const TileCorner corner = corner_of(part, tiles.begin(), task.residue);
      load(problem_, k, of_k, key_boxes, k_box, task, task.key_head, corner, &control.k[stage]);
      load(problem_, v, of_v, value_boxes, v_box, task, task.key_head, corner, &control.v[stage]);
    }
    __syncwarp();
    if (lane == 0) control.producer_slot.advance(stages);
    return true;
  }

  __device__ static TileCorner corner_of(const PartShape& part, std::int32_t entry, std::int32_t residue) {
    if (part.natural) return {part.base + entry, 0};
    const std::int32_t period = part.run.quotient(entry);
    return {part.base + residue + entry - period * static_cast<std::int32_t>(part.run.value), period};
  }

  __device__ static void load(const Problem& problem, char* to, const RowMaps& maps, int boxes, int box_bytes,
                              const ForwardTask& task, std::int32_t head, const TileCorner& corner,
                              std::uint64_t* barrier) {
    const CUtensorMap* map = map_of(maps, corner);
    for (int i = 0; i < boxes; ++i)
      tma_load(to + i * box_bytes, map,
               {{i * 64, head, corner.offset, corner.period, problem.sequence_of(task.sequence)}}, barrier);
  }

  const Problem& problem_;
  char* shared_;
};

}  // namespace longstride::kernels::cuda::sm90
