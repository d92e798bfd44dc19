// Attention on Hopper. A task is one tile of queries of one (sequence, head, class); a block has one, or several in
// turn. A producer loads key and value tiles by TMA through a ring in shared memory, in the order of the pass's parts.
// Each warpgroup of consumers multiplies its 64 queries with them by wgmma, with the online softmax in registers: where
// registers allow, the scores of the next tile are computed while the weights of this one are multiplied by its values.
#pragma once
#include <cstdint>

#include "kernels/attention/sink.h"
#include "kernels/attention/sm90/forward/forward_layout.cuh"
#include "kernels/attention/sm90/forward/forward_producer.cuh"
#include "kernels/attention/sm90/forward/key_runs.cuh"
#include "kernels/attention/sm90/general/list_order.h"
#include "kernels/attention/sm90/general/softmax.cuh"
#include "kernels/attention/term/labels_sm90.cuh"
#include "kernels/attention/term/none_sm90.h"
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

template <class T, int KeySize, int ValueSize, KeysPerQuery KeyCount, bool Pieces, class OfTerm>
struct Forward : ForwardLayout<T, KeySize, ValueSize, KeyCount, Pieces, OfTerm> {
  using Layout = ForwardLayout<T, KeySize, ValueSize, KeyCount, Pieces, OfTerm>;
  using Layout::k_at, Layout::v_at, Layout::k_bytes, Layout::v_bytes, Layout::value_boxes, Layout::shared_of;
  using Layout::key_row, Layout::value_row, Layout::q_box, Layout::k_box, Layout::v_box, Layout::o_box;
  using Layout::listed;
  using Layout::tiling, Layout::queries, Layout::keys, Layout::stages, Layout::warpgroups, Layout::task_slots;
  using typename Layout::Problem, typename Layout::Shared, typename Layout::Term;
  using Task = ForwardTask;
  using Producer = ForwardProducer<Layout>;

  // Called before and after the products of a tile.
  __device__ static void take_turn() {
    if constexpr (tiling.turns) named_barrier_sync(8 + this_warpgroup(), 256);
  }
  __device__ static void end_turn() {
    if constexpr (tiling.turns) named_barrier_arrive(8 + (this_warpgroup() + 1) % warpgroups, 256);
  }

  // The tiles that a warpgroup's own rows need, as the ring brings them. Runs of them are interrupted by tiles that
  // only other warpgroups need.
  class Needed {
   public:
    // slot: where the ring is, at the beginning and in the end. at: which of the tasks in shared memory.
    __device__ Needed(const Problem& problem, char* shared, int at, RingSlot& slot)
        : control_(shared_of(shared)), producer_(problem, shared), runs_(control_, at), slot_(slot) {}

    // Moves to the first tile of the next run; false if there is none. Tiles before it are released as they arrive.
    __device__ bool start() {
      return runs_.start([&] {
        take_turn();
        end_turn();
        barrier_wait(&control_.k[slot_.index], slot_.parity);
        barrier_wait(&control_.v[slot_.index], slot_.parity);
        release(slot_);
        slot_.advance(stages);
      });
    }
    // Moves to the next tile of the run; false if it has ended.
    __device__ bool next() {
      slot_.advance(stages);
      return runs_.next();
    }
    __device__ const RingSlot& slot() const { return slot_; }

    // Lets the tile's memory be filled again.
    __device__ void release(const RingSlot& slot) {
      __syncwarp();
      if (this_lane() == 0) barrier_arrive(&control_.empty[slot.index]);
      if constexpr (!tiling.specialised)
        if (Producer::loads_keys()) more_ = more_ && producer_.load_keys();
    }

    // Once for every tile, when its scores have begun: a tile of a list tells its number.
    __device__ void read() {
      if constexpr (listed) runs_.read(slot_.index);
    }

    __device__ std::int32_t begin() const { return runs_.begin(); }  // the tile's first key
    template <int Count>
    __device__ void mask(float (&s)[Count]) const {
      if (!runs_.is_full()) Softmax::mask(s, runs_.allowed().row);
    }

   private:
    using Runs = std::conditional_t<listed, KeysOfList<queries, keys, stages>, KeyRuns<queries, keys>>;
    Shared& control_;
    Producer producer_;
    Runs runs_;
    RingSlot& slot_;
    bool more_ = true;  // tiles left to load, for the loading threads
  };

  __device__ static void multiply_keys(float (&s)[keys / 2], const char* q, const char* k) {
    wgmma_fence();
    const std::uint64_t a = descriptor<key_row>(q), b = descriptor<key_row>(k);
#pragma unroll
    for (int step = 0; step < KeySize / 16; ++step) {
      const int box = step / 4, within = step % 4 * 32;
      wgmma<T, keys, false>(s, advanced(a, box * q_box + within), advanced(b, box * k_box + within), step > 0);
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

  __device__ static void resume(const Problem& problem, const Task& task, float (&o)[ValueSize / 2], Softmax& softmax) {
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
  __device__ static float* lse_of(const Problem& problem, const Task& task) {
    return problem.lse +
           (static_cast<std::int64_t>(task.sequence) * static_cast<std::int32_t>(problem.heads.value) + task.head) *
               static_cast<std::int64_t>(problem.queries());
  }

  // Through shared memory, where q was.
  __device__ static void store(const Problem& problem, const Task& task, float (&o)[ValueSize / 2],
                               const Softmax& softmax, char* to) {
    float* lse = lse_of(problem, task);
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      Softmax::Result result = softmax.finish(r);
      if (problem.joins_sink(task.sequence)) join_sink(problem.sink[task.head], result.factor, result.lse);
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

  using Labels = std::conditional_t<Term::given, LabelsOfQueries<keys>, NoTerm>;
  __device__ static Labels labels_of(const Problem& problem, const Task& task) {
    if constexpr (Term::given)
      return {problem.labels, task.sequence, task.head, entry_of(task, 0),
              task.begin + uniform(static_cast<std::int32_t>(threadIdx.x) / 32) * 16};
    else
      return {};
  }

  // A warpgroup's queries, and what they have found so far.
  struct Rows {
    const char *q, *k, *v;
    Shared& control;
    Softmax softmax;
    [[no_unique_address]] Labels labels;
    float o[ValueSize / 2] = {};

    __device__ void begin_scores(const RingSlot& slot, float (&s)[keys / 2]) {
      barrier_wait(&control.k[slot.index], slot.parity);
      multiply_keys(s, q, k + slot.index * k_bytes);
    }
    __device__ void add_values(const RingSlot& slot, const std::uint32_t (&p)[keys / 16][4]) {
      barrier_wait(&control.v[slot.index], slot.parity);
      multiply_values(o, p, v + slot.index * v_bytes);
    }
    __device__ void finish_values() {
      wgmma_wait<0>();
      wgmma_hold(o);
    }
    // While the scores of a tile are computed, and after.
    __device__ TileLabels look(const Needed& needed) const {
      if constexpr (Term::given) return labels.look(needed.begin());
      return {};
    }
    __device__ void add_labels(float (&s)[keys / 2], const TileLabels& of_tile) const {
      if constexpr (Term::given) labels.template add<false>(s, of_tile);
    }
    // Scores that have been computed become weights.
    __device__ void weigh(float (&s)[keys / 2], std::uint32_t (&p)[keys / 16][4], const Needed& needed) {
      const TileLabels of_tile = look(needed);
      wgmma_wait<0>();
      wgmma_hold(s);
      add_labels(s, of_tile);
      needed.mask(s);
      if (softmax.weigh(s)) rescale(o, softmax);
      pack_weights(p, s);
    }
  };

  // The tiles of a run, one after the other.
  __device__ static void pass_run(Rows& rows, Needed& needed) {
    do {
      float s[keys / 2] = {};
      std::uint32_t p[keys / 16][4];
      rows.begin_scores(needed.slot(), s);
      needed.read();
      rows.weigh(s, p, needed);
      rows.add_values(needed.slot(), p);
      rows.finish_values();
      needed.release(needed.slot());
    } while (needed.next());
  }
  // The same; the scores of a tile and the product of the weights before it with their values run side by side.
  __device__ static void pass_run_overlapping(Rows& rows, Needed& needed) {
    std::uint32_t p[keys / 16][4];
    RingSlot before = needed.slot();  // holds the weights in p
    {
      float s[keys / 2] = {};
      take_turn();
      rows.begin_scores(before, s);
      end_turn();
      needed.read();
      rows.weigh(s, p, needed);
    }
    while (needed.next()) {
      const RingSlot slot = needed.slot();
      float s[keys / 2] = {};
      take_turn();
      rows.begin_scores(slot, s);
      rows.add_values(before, p);
      end_turn();
      needed.read();
      const TileLabels of_tile = rows.look(needed);
      wgmma_wait<1>();
      wgmma_hold(s);
      rows.add_labels(s, of_tile);
      needed.mask(s);
      const bool grown = rows.softmax.weigh(s);
      rows.finish_values();
      needed.release(before);
      if (grown) rescale(rows.o, rows.softmax);
      pack_weights(p, s);
      before = slot;
    }
    rows.add_values(before, p);
    rows.finish_values();
    needed.release(before);
  }

  __device__ static void pass_task(const Problem& problem, char* shared, int at, RingSlot& slot) {
    Shared& control = shared_of(shared);
    const Task& task = control.task[at];
    char* const q = Layout::queries_of(shared, at, uniform(this_warpgroup()));
    Rows rows = {q, shared + k_at, shared + v_at, control, Softmax(problem.rate), labels_of(problem, task)};
    if (problem.resumes) resume(problem, task, rows.o, rows.softmax);
    Needed needed(problem, shared, at, slot);
    while (needed.start()) {
      if constexpr (tiling.overlaps)
        pass_run_overlapping(rows, needed);
      else
        pass_run(rows, needed);
    }
    store(problem, task, rows.o, rows.softmax, q);
  }

  // ---- Blocks with one task, whose warpgroups also load ----

  __device__ static std::int32_t task_of_block(const Problem& problem) {
    const auto block = static_cast<std::int32_t>(blockIdx.x);
    if constexpr (!listed) return block;
    const auto units = static_cast<std::int32_t>(problem.heads.value * problem.batch.value);
    return listed_task(block, units, static_cast<std::int32_t>(problem.tasks) / units);
  }

  __device__ static void pass_only_task(const Problem& problem, char* shared, const Task& task) {
    Shared& control = shared_of(shared);
    const Producer producer(problem, shared);
    if (threadIdx.x == Producer::query_loader) {
      control.task[0] = task;
      control.producer_slot = {};
      init_barriers(control);
      producer.load_queries();
    }
    if constexpr (listed)
      if (threadIdx.x == Producer::key_loader) control.producer_tiles.enter(problem, task);
    control.rows[0].fill(problem, task, threadIdx.x, blockDim.x);
    __syncthreads();
    if (Producer::loads_keys()) {
      for (int i = 0; i < stages && producer.load_keys(); ++i) {
      }
    }
    RingSlot slot;
    barrier_wait(&control.q[0], 0);
    pass_task(problem, shared, 0, slot);
  }

  // ---- Blocks with a producer warpgroup, which have one task after the other ----

  static constexpr int finders = 96;  // threads of the producer warpgroup: all but the warp that loads

  // Tasks are in the order of their length. Every other round of blocks takes them the other way round.
  __device__ static std::int64_t task_of_round(int round) {
    const int at = round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
    return std::int64_t{round} * gridDim.x + at;
  }
  // Finds the block's tasks, and what their rows see.
  __device__ static void find_tasks(const Problem& problem, char* shared) {
    Shared& control = shared_of(shared);
    const auto thread = static_cast<std::int32_t>(threadIdx.x) - Producer::key_loader - 32;
    RingSlot at;
    for (int round = 0;; ++round) {
      Task task = {};
      const bool is_end = std::int64_t{round} * gridDim.x >= problem.tasks;
      const std::int64_t index = task_of_round(round);
      if (!is_end && (index >= problem.tasks || !task.find(problem, queries, static_cast<std::int32_t>(index))))
        continue;
      barrier_wait(&control.task_empty[at.index], at.parity ^ 1);
      if (is_end) task.parts = 0;
      if (thread == 0) control.task[at.index] = task;
      if (!is_end) control.rows[at.index].fill(problem, task, thread, finders);
      barrier_arrive(&control.task_full[at.index]);
      if (is_end) return;
      at.advance(task_slots);
    }
  }
  // Calls pass(task) for the block's tasks, and lets them go.
  template <class F>
  __device__ static void for_tasks(Shared& control, const F& pass) {
    RingSlot at;
    for (;;) {
      barrier_wait(&control.task_full[at.index], at.parity);
      if (control.task[at.index].parts == 0) return;
      pass(at);
      __syncwarp();
      if (this_lane() == 0) barrier_arrive(&control.task_empty[at.index]);
      at.advance(task_slots);
    }
  }
  __device__ static void load_tasks(const Problem& problem, char* shared) {
    const Producer producer(problem, shared);
    for_tasks(shared_of(shared), [&](const RingSlot& at) {
      if (this_lane() == 0) producer.load_queries(at.index);
      __syncwarp();
      if (Producer::loads_keys())
        while (producer.load_keys(at.index)) {
        }
    });
  }
  __device__ static void pass_tasks(const Problem& problem, char* shared) {
    Shared& control = shared_of(shared);
    RingSlot slot;
    if (tiling.turns && this_warpgroup() == warpgroups - 1) end_turn();
    for_tasks(control, [&](const RingSlot& at) {
      barrier_wait(&control.q[at.index], at.parity);
      pass_task(problem, shared, at.index, slot);
    });
  }

  __device__ static void init_barriers(Shared& control) {
    for (int i = 0; i < task_slots; ++i) {
      barrier_init(&control.q[i], 1);
      barrier_init(&control.task_full[i], finders);
      barrier_init(&control.task_empty[i], warpgroups * 4 + 1);
    }
    for (int i = 0; i < stages; ++i) {
      barrier_init(&control.k[i], 1);
      barrier_init(&control.v[i], 1);
      barrier_init(&control.empty[i], warpgroups * 4);
    }
    barrier_init_fence();
    proxy_fence();
  }
  __device__ static void pass_block(const Problem& problem, char* shared) {
    if (threadIdx.x == 0) {
      shared_of(shared).producer_slot = {};
      init_barriers(shared_of(shared));
    }
    __syncthreads();
    if (threadIdx.x < Producer::key_loader) {
      registers_take<tiling.consumer_registers>();
      pass_tasks(problem, shared);
    } else {
      registers_give<tiling.producer_registers>();
      threadIdx.x < Producer::key_loader + 32 ? load_tasks(problem, shared) : find_tasks(problem, shared);
    }
  }
};

template <class T, int KeySize, int ValueSize, KeysPerQuery KeyCount, bool Pieces, class Term>
__global__ void __launch_bounds__(Forward<T, KeySize, ValueSize, KeyCount, Pieces, Term>::tiling.threads(),
                                  Forward<T, KeySize, ValueSize, KeyCount, Pieces, Term>::tiling.blocks)
    forward(const __grid_constant__ typename Forward<T, KeySize, ValueSize, KeyCount, Pieces, Term>::Problem problem) {
  using F = Forward<T, KeySize, ValueSize, KeyCount, Pieces, Term>;
  extern __shared__ char memory[];
  char* const shared = memory + bytes_to_tile(memory);
  if constexpr (F::tiling.specialised) {
    F::pass_block(problem, shared);
  } else {
    typename F::Task task;
    if (task.find(problem, F::queries, F::task_of_block(problem))) F::pass_only_task(problem, shared, task);
  }
}

}  // namespace longstride::kernels::cuda::sm90
