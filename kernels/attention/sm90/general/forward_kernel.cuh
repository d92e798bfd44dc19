// Attention on Hopper. A block owns one tile of queries of one (sequence, head, segment). A producer loads key and
// value tiles by TMA through a ring in shared memory, in the order of the pass's parts. Each warpgroup of consumers
// multiplies its 64 queries with them by wgmma, with the online softmax in registers: the scores of the next tile are
// computed while the weights of this one are multiplied by its values.
#pragma once
#include <algorithm>

#include "kernels/attention/sm90/general/forward_task.cuh"
#include "kernels/attention/sm90/general/forward_tiling.h"
#include "kernels/attention/sm90/general/key_tiles.cuh"
#include "kernels/attention/sm90/general/load_pieces.cuh"
#include "kernels/attention/sm90/general/softmax.cuh"
#include "kernels/base/approximate.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_types.cuh"
#include "kernels/gpu/barrier.cuh"
#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/lane.cuh"
#include "kernels/gpu/ring.cuh"
#include "kernels/gpu/shared.cuh"
#include "kernels/gpu/tma.cuh"
#include "kernels/gpu/wgmma.cuh"

namespace longstride::kernels::cuda::sm90 {

namespace {

__device__ const CUtensorMap* map_of(const RowMaps& maps, const TileCorner& corner) {
  return corner.offset < maps.rest ? &maps.longer : &maps.complete;
}

// `Pieces`: tiles of summary rows are read in pieces (tile_pieces.h).
template <class T, int KeySize, int ValueSize, bool FewKeys, bool Pieces>
struct Forward {
  using Problem = std::conditional_t<Pieces, ForwardProblemInPieces, ForwardProblem>;
  static constexpr ForwardTiling tiling = forward_tiling(ValueSize, FewKeys);
  static constexpr int queries = tiling.queries(), keys = tiling.keys, stages = tiling.stages,
                       warpgroups = tiling.warpgroups;
  static_assert(!Pieces || (KeySize >= 64 && ValueSize >= 64), "rows of 128 bytes");
  // The threads that start copies. Without a producer warpgroup two consumer threads share the work.
  static constexpr int key_loader = tiling.specialised ? warpgroups * 128 : warpgroups * 128 - 32;
  static constexpr int query_loader = tiling.specialised ? key_loader : 0;
  static constexpr int key_row = std::min(KeySize, 64) * 2, value_row = std::min(ValueSize, 64) * 2;
  static constexpr int key_boxes = (KeySize + 63) / 64, value_boxes = (ValueSize + 63) / 64;
  static constexpr int q_box = 64 * key_row, k_box = keys * key_row, v_box = keys * value_row, o_box = 64 * value_row;
  static constexpr int q_bytes = q_box * key_boxes, k_bytes = k_box * key_boxes, v_bytes = v_box * value_boxes;
  static constexpr int query_bytes = std::max(q_bytes, o_box* value_boxes);  // o reuses the memory of q

  using Task = ForwardTask;

  // Shared memory, from a multiple of 1024 bytes: queries, keys, values, and this.
  struct Shared {
    std::uint64_t q, k[stages], v[stages], empty[stages];
    Task task;
    KeyTiles<queries, keys> producer_tiles;
    RingSlot producer_slot;
    RowIntervals<queries> rows;
  };
  static constexpr int k_at = warpgroups * query_bytes, v_at = k_at + stages * k_bytes,
                       control_at = v_at + stages * v_bytes;
  static constexpr std::size_t shared_bytes = control_at + sizeof(Shared) + 1024;
  __device__ static Shared& shared_of(char* shared) { return *reinterpret_cast<Shared*>(shared + control_at); }

  __device__ static TileCorner corner_of(const PartShape& part, std::int32_t entry, std::int32_t segment) {
    if (part.natural) return {part.base + entry, 0};
    const std::int32_t period = part.run.quotient(entry);
    return {part.base + segment + entry - period * static_cast<std::int32_t>(part.run.value), period};
  }

  __device__ static void load(char* to, const RowMaps& maps, int boxes, int box_bytes, const Task& task,
                              const TileCorner& corner, std::uint64_t* barrier) {
    const CUtensorMap* map = map_of(maps, corner);
    for (int i = 0; i < boxes; ++i)
      tma_load(to + i * box_bytes, map, {{i * 64, task.head, corner.offset, corner.period, task.sequence}}, barrier);
  }

  // Whether this thread calls load_keys: the loading thread or, as pieces are many, its warp.
  __device__ static bool loads_keys() {
    return Pieces ? threadIdx.x / 32 == key_loader / 32 : threadIdx.x == key_loader;
  }

  // One thread loads everything but pieces. Its state is in shared memory because in small blocks it has other work
  // too.
  class Producer {
   public:
    __device__ Producer(const Problem& problem, char* shared) : problem_(problem), shared_(shared) {}

    __device__ void load_queries() const {
      Shared& control = shared_of(shared_);
      control.producer_tiles = {};
      control.producer_slot = {};
      const Task& task = control.task;
      barrier_arrive_expect(&control.q, warpgroups * q_bytes);
      for (int w = 0; w < warpgroups; ++w)
        load(shared_ + w * query_bytes, problem_.q[problem_.pass[task.pass].kind], key_boxes, q_box, task,
             task.corner(task.begin + w * 64), &control.q);
    }

    // Waits for room and loads the next key tile; false after the last.
    __device__ bool load_keys() const {
      if constexpr (Pieces) return load_keys_by_warp();
      Shared& control = shared_of(shared_);
      const Task& task = control.task;
      KeyTiles<queries, keys>& tiles = control.producer_tiles;
      if (!tiles.next(control.rows, task.parts)) return false;
      const PartShape& part = problem_.pass[task.pass].part[tiles.part];
      const TileCorner corner = corner_of(part, tiles.begin(), task.segment);
      const int stage = control.producer_slot.index;
      barrier_wait(&control.empty[stage], control.producer_slot.parity ^ 1);
      barrier_arrive_expect(&control.k[stage], k_bytes);
      load(shared_ + k_at + stage * k_bytes, problem_.k[part.kind], key_boxes, k_box, task, corner, &control.k[stage]);
      barrier_arrive_expect(&control.v[stage], v_bytes);
      load(shared_ + v_at + stage * v_bytes, problem_.v[part.kind], value_boxes, v_box, task, corner,
           &control.v[stage]);
      control.producer_slot.advance(stages);
      return true;
    }

   private:
    // The same, called by a warp: its first lane has the state, all copy pieces.
    __device__ bool load_keys_by_warp() const {
      Shared& control = shared_of(shared_);
      const Task& task = control.task;
      KeyTiles<queries, keys>& tiles = control.producer_tiles;
      const int lane = this_lane();
      const bool found = lane == 0 && tiles.next(control.rows, task.parts);
      if (!__any_sync(~0u, found)) return false;
      __syncwarp();
      const PartShape& part = problem_.pass[task.pass].part[tiles.part];
      const auto run = static_cast<std::int32_t>(part.run.value), period = static_cast<std::int32_t>(part.period.value);
      const TilePieces pieces(part.base + task.segment, run, period, tiles.begin(), keys,
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
        load_pieces(pieces, PieceCopy<key_boxes, k_box>{&of_k.complete, problem_.k_pieces, k, &control.k[stage]},
                    PieceCopy<value_boxes, v_box>{&of_v.complete, problem_.v_pieces, v, &control.v[stage]}, task.head,
                    task.sequence, lane, 32);
      } else if (lane == 0) {
        const TileCorner corner = corner_of(part, tiles.begin(), task.segment);
        load(k, of_k, key_boxes, k_box, task, corner, &control.k[stage]);
        load(v, of_v, value_boxes, v_box, task, corner, &control.v[stage]);
      }
      __syncwarp();
      if (lane == 0) control.producer_slot.advance(stages);
      return true;
    }

    const Problem& problem_;
    char* shared_;
  };

  // The tiles that a warpgroup's own rows need.
  class Needed {
   public:
    __device__ Needed(const Problem& problem, char* shared) : control_(shared_of(shared)), producer_(problem, shared) {}

    // Moves to the next tile that is needed; tiles that are not are released as they arrive. A warpgroup that holds a
    // tile uses the last tile before the ring comes round to that slot, even if it needs none of its keys, which then
    // have no weight. Otherwise the next tile would wait for the slot of the held one, and the warpgroup for the next.
    __device__ bool next() {
      for (;;) {
        if (started_) slot_.advance(stages);
        started_ = true;
        if (!tiles_.next(control_.rows, control_.task.parts)) return false;
        if (tiles_.entered) enter();
        const std::int32_t begin = tiles_.begin();
        if ((begin < end_ && begin + keys > begin_) || (holds_ && skipped_ == stages - 2)) {
          skipped_ = 0;
          return true;
        }
        ++skipped_;
        take_turn();
        end_turn();
        barrier_wait(&control_.k[slot_.index], slot_.parity);
        barrier_wait(&control_.v[slot_.index], slot_.parity);
        let_go(slot_);
        ++due_;
        if (!holds_) refill();
      }
    }

    __device__ const RingSlot& slot() const { return slot_; }

    // Called before and after the products of a tile.
    __device__ void take_turn() {
      if constexpr (tiling.turns) named_barrier_sync(8 + threadIdx.x / 128, 256);
    }
    __device__ void end_turn() {
      if constexpr (tiling.turns) named_barrier_arrive(8 + (threadIdx.x / 128 + 1) % warpgroups, 256);
    }

    // From here to release() the tile is held.
    __device__ void hold() { holds_ = true; }

    // Lets the tile's memory be filled again.
    __device__ void release(const RingSlot& slot) {
      let_go(slot);
      ++due_;
      refill();
    }

    template <int Count>
    __device__ void mask(float (&s)[Count]) const {
      const std::int32_t begin = tiles_.begin();
      if (begin >= full_begin_ && begin + keys <= full_end_) return;
      const Interval* row = control_.rows.row[tiles_.part] + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
      const Interval allowed[2] = {{row[0].begin - begin, row[0].end - begin},
                                   {row[8].begin - begin, row[8].end - begin}};
      Softmax::mask(s, allowed);
    }

   private:
    __device__ void let_go(const RingSlot& slot) {
      __syncwarp();
      if (this_lane() == 0) barrier_arrive(&control_.empty[slot.index]);
    }
    __device__ void refill() {
      if constexpr (!tiling.specialised)
        if (loads_keys())
          for (; due_ > 0; --due_) more_ = more_ && producer_.load_keys();
    }

    __device__ void enter() {
      const Interval* row = control_.rows.row[tiles_.part];
      const int warpgroup = threadIdx.x / 128 * 64, warp = threadIdx.x / 32 * 16;
      begin_ = row[warpgroup].begin;
      end_ = row[warpgroup + 63].end;
      if (control_.task.begin + warpgroup >= control_.task.length) end_ = 0;
      full_begin_ = row[warp + 15].begin;
      full_end_ = row[warp].end;
    }

    Shared& control_;
    Producer producer_;
    KeyTiles<queries, keys> tiles_ = {};
    RingSlot slot_ = {};
    bool started_ = false, holds_ = false;
    bool more_ = true;           // tiles left to load, for the loading threads
    int due_ = 0, skipped_ = 0;  // tiles let go: not loaded anew, and since the last one used
    std::int32_t begin_ = 0, end_ = 0, full_begin_ = 0, full_end_ = 0;
  };

  __device__ static void multiply_keys(float (&s)[keys / 2], const char* q, const char* k) {
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < KeySize / 16; ++step) {
      const int box = step / 4, within = step % 4 * 32;
      wgmma<T, keys, false>(s, descriptor<key_row>(q + box * q_box + within),
                            descriptor<key_row>(k + box * k_box + within), step > 0);
    }
    wgmma_commit();
  }

  __device__ static void multiply_values(float (&o)[ValueSize / 2], const std::uint32_t (&p)[keys / 16][4],
                                         const char* v) {
    wgmma_fence();
    const std::uint64_t b = descriptor<value_row>(v, v_box);
#pragma unroll
    for (int step = 0; step < keys / 16; ++step)
      wgmma<T, ValueSize, true>(o, p[step], advanced(b, step * 16 * value_row), true);
    wgmma_commit();
  }

  __device__ static void rescale(float (&o)[ValueSize / 2], const Softmax& softmax) {
#pragma unroll
    for (int i = 0; i < ValueSize / 2; ++i) o[i] *= softmax.shrink(i / 2 % 2);
  }

  __device__ static void pack_weights(std::uint32_t (&p)[keys / 16][4], const float (&s)[keys / 2]) {
#pragma unroll
    for (int step = 0; step < keys / 16; ++step) pack_operand<T>(p[step], s, step);
  }

  __device__ static void resume(const ForwardProblem& problem, const Task& task, float (&o)[ValueSize / 2],
                                Softmax& softmax) {
    const auto* base =
        static_cast<const T*>(problem.o_data) + task.sequence * problem.o_stride[0] + task.head * problem.o_stride[2];
    const float* lse = lse_of(problem, task);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const std::int32_t entry = entry_of(task, r);
      if (entry >= task.length) continue;
      const std::int32_t position = task.position(entry);
      softmax.resume(r, lse[position]);
      const T* row = base + position * problem.o_stride[1];
#pragma unroll
      for (int j = 0; j < ValueSize / 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const std::int32_t column = 8 * j + 2 * (threadIdx.x % 4) + e;
          if (column < problem.value_size) o[element_at(j, r, e)] = to_float(row[column]);
        }
    }
  }

  __device__ static std::int32_t entry_of(const Task& task, int row) {
    return task.begin + static_cast<std::int32_t>(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4) + 8 * row;
  }
  __device__ static float* lse_of(const ForwardProblem& problem, const Task& task) {
    return problem.lse +
           (static_cast<std::int64_t>(task.sequence) * static_cast<std::int32_t>(problem.heads.value) + task.head) *
               static_cast<std::int64_t>(problem.n);
  }

  // Through shared memory, where q was.
  __device__ static void store(const ForwardProblem& problem, const Task& task, float (&o)[ValueSize / 2],
                               const Softmax& softmax, char* to) {
    float* lse = lse_of(problem, task);
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Softmax::Result result = softmax.finish(r);
      factor[r] = result.factor;
      const std::int32_t entry = entry_of(task, r);
      if (threadIdx.x % 4 == 0 && entry < task.length) lse[task.position(entry)] = result.lse;
    }
    named_barrier_sync(1 + threadIdx.x / 128, 128);  // all warps have finished reading q
    const int lane = this_lane(), row = threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
    for (int j = 0; j < ValueSize / 8; j += 2) {
      const int chunk = (j + lane / 16) % (value_row / 16), box = j / 8;
      const int at = row * value_row + chunk * 16, swizzled = at ^ ((at >> 7) % (value_row / 16)) << 4;
      const float* d = o + 4 * j;
      store_matrices(to + box * o_box + swizzled, pack<T>(d[0] * factor[0], d[1] * factor[0]),
                     pack<T>(d[2] * factor[1], d[3] * factor[1]), pack<T>(d[4] * factor[0], d[5] * factor[0]),
                     pack<T>(d[6] * factor[1], d[7] * factor[1]));
    }
    proxy_fence();
    named_barrier_sync(1 + threadIdx.x / 128, 128);
    const std::int32_t begin = task.begin + threadIdx.x / 128 * 64;
    if (threadIdx.x % 128 != 0 || begin >= task.length) return;
    const TileCorner corner = task.corner(begin);
    const CUtensorMap* map = map_of(problem.o[problem.pass[task.pass].kind], corner);
    for (int i = 0; i < value_boxes; ++i)
      tma_store(map, {{i * 64, task.head, corner.offset, corner.period, task.sequence}}, to + i * o_box);
    store_commit();
    store_wait<0>();
  }

  __device__ static void consume(const Problem& problem, char* shared) {
    Shared& control = shared_of(shared);
    const Task& task = control.task;
    char* const q = shared + threadIdx.x / 128 * query_bytes;
    const char* const k = shared + k_at;
    const char* const v = shared + v_at;
    float o[ValueSize / 2] = {};
    Softmax softmax(problem.rate);
    if (problem.resumes) resume(problem, task, o, softmax);
    Needed needed(problem, shared);
    barrier_wait(&control.q, 0);
    const auto scores_of = [&](const RingSlot& slot, float(&s)[keys / 2]) {
      barrier_wait(&control.k[slot.index], slot.parity);
      multiply_keys(s, q, k + slot.index * k_bytes);
    };
    const auto add_values = [&](const RingSlot& slot, const std::uint32_t(&w)[keys / 16][4]) {
      barrier_wait(&control.v[slot.index], slot.parity);
      multiply_values(o, w, v + slot.index * v_bytes);
    };
    std::uint32_t p[keys / 16][4];
    if (tiling.turns && threadIdx.x / 128 == warpgroups - 1) needed.end_turn();
    if constexpr (tiling.overlaps) {
      if (!needed.next()) return store(problem, task, o, softmax, q);
      RingSlot before = needed.slot();  // of the weights in p
      {
        float s[keys / 2] = {};
        needed.hold();
        needed.take_turn();
        scores_of(before, s);
        needed.end_turn();
        wgmma_wait<0>();
        wgmma_hold(s);
        needed.mask(s);
        if (softmax.weigh(s)) rescale(o, softmax);
        pack_weights(p, s);
      }
      while (needed.next()) {
        const RingSlot slot = needed.slot();
        float s[keys / 2] = {};
        needed.take_turn();
        scores_of(slot, s);
        add_values(before, p);
        needed.end_turn();
        wgmma_wait<1>();
        wgmma_hold(s);
        needed.mask(s);
        const bool grown = softmax.weigh(s);
        wgmma_wait<0>();
        wgmma_hold(o);
        needed.release(before);
        if (grown) rescale(o, softmax);
        pack_weights(p, s);
        before = slot;
      }
      add_values(before, p);
      wgmma_wait<0>();
      wgmma_hold(o);
    } else {
      while (needed.next()) {
        float s[keys / 2] = {};
        scores_of(needed.slot(), s);
        wgmma_wait<0>();
        wgmma_hold(s);
        needed.mask(s);
        if (softmax.weigh(s)) rescale(o, softmax);
        pack_weights(p, s);
        add_values(needed.slot(), p);
        wgmma_wait<0>();
        wgmma_hold(o);
        needed.release(needed.slot());
      }
    }
    store(problem, task, o, softmax, q);
  }
};

template <class T, int KeySize, int ValueSize, bool FewKeys, bool Pieces>
__global__ void __launch_bounds__(Forward<T, KeySize, ValueSize, FewKeys, Pieces>::tiling.threads(),
                                  Forward<T, KeySize, ValueSize, FewKeys, Pieces>::tiling.blocks)
    forward(const __grid_constant__ typename Forward<T, KeySize, ValueSize, FewKeys, Pieces>::Problem problem) {
  using F = Forward<T, KeySize, ValueSize, FewKeys, Pieces>;
  extern __shared__ char memory[];
  typename F::Task task;
  if (!task.find(problem, F::queries)) return;
  char* const shared = memory + bytes_to_tile(memory);
  auto& control = F::shared_of(shared);
  const typename F::Producer producer(problem, shared);
  if (threadIdx.x == F::query_loader) {
    control.task = task;
    barrier_init(&control.q, 1);
    for (int i = 0; i < F::stages; ++i) {
      barrier_init(&control.k[i], 1);
      barrier_init(&control.v[i], 1);
      barrier_init(&control.empty[i], F::warpgroups * 4);
    }
    barrier_init_fence();
    proxy_fence();
    producer.load_queries();
  }
  control.rows.fill(problem.pass[task.pass], task.segment, task.begin, task.length);
  __syncthreads();
  if constexpr (F::tiling.specialised) {
    if (threadIdx.x >= F::key_loader) {
      registers_give<F::tiling.producer_registers>();
      if (F::loads_keys()) {
        while (producer.load_keys()) {
        }
      }
    } else {
      registers_take<F::tiling.consumer_registers>();
      F::consume(problem, shared);
    }
  } else {
    if (F::loads_keys()) {
      for (int i = 0; i < F::stages && producer.load_keys(); ++i) {
      }
    }
    F::consume(problem, shared);
  }
}

}  // namespace
}  // namespace longstride::kernels::cuda::sm90
