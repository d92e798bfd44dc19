// Attention forward over a band: queries and keys are one row set, cut into tiles of 64 rows, and a query tile sees the
// few key tiles up to its own. A warpgroup owns a run of query tiles of one segment, or all tiles of a chain of
// segments: keys and values pass through its ring once and stay while a query tile of the run sees them, and the next
// tiles are loaded while this one is computed.
//
// The scores of three key tiles are in registers at once: one maximum, one pass of exponentials, one sum, and no
// rescaling. A query tile that sees more processes them in several rounds, as an online softmax. A warp processes
// sixteen keys at a time, and only those that its sixteen queries see; visibility follows from two numbers per row.
#pragma once
#include <algorithm>
#include <type_traits>

#include "kernels/attention/sm90/band/band_forward_problem.h"
#include "kernels/base/approximate.cuh"
#include "kernels/gpu/barrier.cuh"
#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/lane.cuh"
#include "kernels/gpu/ring.cuh"
#include "kernels/gpu/shared.cuh"
#include "kernels/gpu/tma.cuh"
#include "kernels/gpu/wgmma.cuh"

namespace longstride::kernels::cuda::sm90 {

// The query tiles of a warpgroup: [begin, end) in each of its segments.
struct BandForwardTask {
  std::int32_t head, sequence, run, segment, segment_end;
  std::int32_t base, step, length;  // of this segment: entry t is at base + t * step
  std::int32_t begin, end;

  // Consecutive blocks have neighbouring heads, then neighbouring segments, because their rows are neighbours in
  // memory.
  __device__ BandForwardTask(const BandForwardProblem& problem, std::int32_t index) {
    const std::int32_t rest = problem.by_heads.quotient(index);
    head = index - rest * static_cast<std::int32_t>(problem.by_heads.value);
    sequence = static_cast<std::int32_t>(blockIdx.y);
    run = problem.by_chains.quotient(rest);
    segment = (rest - run * static_cast<std::int32_t>(problem.by_chains.value)) * problem.chain;
    segment_end = min(segment + problem.chain, problem.segments);
    step = problem.set.run >= problem.set.period ? 1 : problem.set.period;
  }
  // Moves to this segment; false after the last.
  __device__ bool enter(const BandForwardProblem& problem) {
    if (segment >= segment_end) return false;
    base = problem.set.base + segment;
    length = step == 1 ? problem.set.length : problem.by_period.quotient(problem.n - base + step - 1);
    begin = run * problem.run;
    end = min(begin + problem.run, (length + band_rows - 1) / band_rows);
    return true;
  }
  __device__ Coordinates corner(std::int32_t entry, std::int32_t column) const {
    return {{column, head, step == 1 ? base + entry : base, step == 1 ? 0 : entry, sequence}};
  }
  __device__ const CUtensorMap* map_of(const RowMaps& maps) const {
    return base < maps.rest ? &maps.longer : &maps.complete;
  }
};

// A block is three warpgroups of consumers and one, with few registers, that loads the tiles of all. The consumers have
// a task each, with a ring of keys and values of its own; or, if their keys do not fit three times (`Shares`), one task
// and one ring, and take its query tiles in turn.
template <class T, int KeySize, int ValueSize, bool Shares>
struct BandForward {
  static constexpr int groups = 3, tasks = Shares ? 1 : groups, sharers = groups / tasks;  // of a ring
  static constexpr int threads = (groups + 1) * 128, rows = band_rows, warps = 4, warp_rows = 16;
  static constexpr int loader_registers = 32, consumer_registers = 160;  // together all of a multiprocessor's
  static_assert(loader_registers + groups * consumer_registers == 65536 / 128);
  // Values of more than 64 columns leave little room: queries are in one slot, and outputs leave 64 columns at a time.
  static constexpr bool is_large = ValueSize > 64;
  static constexpr int query_slots = is_large ? 1 : 2;  // of a consumer
  static constexpr std::int32_t most_reach_here = is_large ? 4 : most_reach;
  static constexpr int key_row = std::min(KeySize, 64) * 2, value_row = std::min(ValueSize, 64) * 2;
  static constexpr int key_boxes = (KeySize + 63) / 64, value_boxes = (ValueSize + 63) / 64;
  static constexpr int key_bytes = rows * KeySize * 2, value_bytes = rows * ValueSize * 2;
  static constexpr int stage_bytes = key_bytes + value_bytes;
  static constexpr int warp_output_bytes = warp_rows * value_row;

  // Shared memory of a task, from a multiple of 1024 bytes: queries and outputs of every sharer, keys and values,
  // barriers.
  static constexpr int outputs_at = query_slots * key_bytes, sharer_bytes = outputs_at + warps * warp_output_bytes;
  static constexpr int keys_at = sharers * sharer_bytes, barrier_room = 1024;
  __host__ __device__ static constexpr int task_bytes(int stages) {
    return keys_at + stages * stage_bytes + barrier_room;
  }
  static constexpr std::size_t shared_bytes(int stages) {
    return static_cast<std::size_t>(tasks * task_bytes(stages)) + 1024;
  }
  // Stages for sharers at consecutive query tiles, none of which waits for another.
  static constexpr int needed_stages(int reach) { return reach + sharers - 1; }

  const BandForwardProblem& problem;
  char* const shared;
  const int sharer;  // of the task, whose query tiles sharer, sharer + sharers, ... it takes

  __device__ char* queries(int of, int slot) const { return shared + of * sharer_bytes + slot * key_bytes; }
  __device__ char* keys(int stage) const { return shared + keys_at + stage * stage_bytes; }
  __device__ std::uint64_t* barriers() const {
    return reinterpret_cast<std::uint64_t*>(shared + keys_at + problem.stages * stage_bytes);
  }
  __device__ std::uint64_t* query_full(int of, int slot) const { return barriers() + of * 2 * query_slots + slot; }
  __device__ std::uint64_t* query_empty(int of, int slot) const { return query_full(of, slot) + query_slots; }
  __device__ std::uint64_t* key_full(int stage) const { return barriers() + sharers * 2 * query_slots + stage; }
  __device__ std::uint64_t* key_empty(int stage) const { return key_full(problem.stages) + stage; }

  __device__ void init_barriers() const {
    for (int of = 0; of < sharers; ++of)
      for (int i = 0; i < query_slots; ++i) {
        barrier_init(query_full(of, i), 1);
        barrier_init(query_empty(of, i), warps);
      }
    for (int i = 0; i < problem.stages; ++i) {
      barrier_init(key_full(i), 1);
      barrier_init(key_empty(i), sharers * warps);
    }
    barrier_init_fence();
  }

  // The last key tile that a query tile sees is its own.
  __device__ std::int32_t first_key_tile(std::int32_t tile) const { return problem.limit.low(tile * rows) / rows; }

  // ---- Loads, by one thread ----

  // Loads every query tile, and before it the key tiles that no query tile before it has seen.
  __device__ void load(BandForwardTask task) const {
    RingSlot query_slot, key_slot;
    int of = 0;  // the sharer whose turn it is
    for (; task.enter(problem); ++task.segment) {
      std::int32_t key = first_key_tile(task.begin);
      for (std::int32_t tile = task.begin; tile < task.end; ++tile) {
        load_queries(task, tile, of, query_slot);
        for (; key <= tile; ++key) load_keys(task, key, key_slot);
        if (++of == sharers) {
          of = 0;
          query_slot.advance(query_slots);
        }
      }
    }
  }
  __device__ void load_queries(const BandForwardTask& task, std::int32_t tile, int of, const RingSlot& at) const {
    barrier_wait(query_empty(of, at.index), at.parity ^ 1);
    std::uint64_t* const full = query_full(of, at.index);
    barrier_arrive_expect(full, key_bytes);
    for (int i = 0; i < key_boxes; ++i)
      tma_load(queries(of, at.index) + i * rows * key_row, task.map_of(problem.q), task.corner(tile * rows, i * 64),
               full);
  }
  __device__ void load_keys(const BandForwardTask& task, std::int32_t tile, RingSlot& at) const {
    char* const to = keys(at.index);
    std::uint64_t* const full = key_full(at.index);
    barrier_wait(key_empty(at.index), at.parity ^ 1);
    barrier_arrive_expect(full, stage_bytes);
    for (int i = 0; i < key_boxes; ++i)
      tma_load(to + i * rows * key_row, task.map_of(problem.k), task.corner(tile * rows, i * 64), full);
    for (int i = 0; i < value_boxes; ++i)
      tma_load(to + key_bytes + i * rows * value_row, task.map_of(problem.v), task.corner(tile * rows, i * 64), full);
    at.advance(problem.stages);
  }

  // ---- One query tile ----

  // The keys that a warp's sixteen query rows see, counted from the first key of a key tile. A group is sixteen keys.
  struct Sight {
    int own;                     // the group of the rows themselves
    std::uint32_t visible, cut;  // groups that some row sees, and those whose beginning some row does not see
    std::int32_t low[2];         // the first keys that the thread's two rows see, less the thread's first column

    __device__ Sight from_tile(int tile) const {
      return {own - 4 * tile, visible >> 4 * tile, cut >> 4 * tile, {low[0] - rows * tile, low[1] - rows * tile}};
    }
  };
  __device__ Sight sight_of(std::int32_t tile, std::int32_t first_key_tile, int warp) const {
    const std::int32_t begin = first_key_tile * rows, first = tile * rows + warp * warp_rows;
    const int lane = this_lane(), column = 2 * (lane % 4);
    const BandLimit& limit = problem.limit;
    const int own = (first - begin) / warp_rows, from = max(limit.low(first) - begin, 0) / warp_rows,
              whole_from = max(limit.low(first + warp_rows - 1) - begin + warp_rows - 1, 0) / warp_rows;
    return {own,
            (2u << own) - (1u << from),
            (1u << whole_from) - 1,
            {limit.low(first + lane / 4) - begin - column, limit.low(first + lane / 4 + 8) - begin - column}};
  }

  // Per row of the thread: the largest score, and the sum of the weights relative to it.
  struct Softmax {
    float top[2], sum[2];
  };
  // Less than any score, and finite so that the weights of a row that sees no key yet are 0.
  static constexpr float lowest = -1e30f;

  // Processes `Count` key tiles from `stage` on. First: no key tiles of this query tile have been processed before.
  // `with_scores` runs when the scores are there, `at_end` during the last products.
  template <int Count, bool First, class WithScores, class AtEnd>
  __device__ void attend(float (&o)[ValueSize / 2], Softmax& softmax, const Sight& sight, const char* query_tile,
                         int stage, WithScores with_scores, AtEnd at_end) const {
    float s[Count][rows / 2];
    const char* tile[Count];
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < Count; ++c) {
      tile[c] = keys(stage);
      stage = next_slot(stage, problem.stages);
      multiply_tiles<T, KeySize>(s[c], query_tile, tile[c]);
    }

    const int lane = this_lane();
    const int high = lane / 4 - 2 * (lane % 4);  // last visible key of the own group, less the first column
    float top[2] = {First ? lowest : softmax.top[0], First ? lowest : softmax.top[1]};
    const auto find_top = [&](int c) {
#pragma unroll
      for (int g = 0; g < 4; ++g) {
        const int group = 4 * c + g;
        if (!(sight.visible >> group & 1)) continue;
        float* const x = s[c] + 8 * g;
        if (sight.cut >> group & 1) {
#pragma unroll
          for (int i = 0; i < 8; ++i)
            if (16 * group + i / 4 * 8 + i % 2 < sight.low[i / 2 % 2]) x[i] = -__builtin_huge_valf();
        }
        if (c == Count - 1 && sight.own == group) {
#pragma unroll
          for (int i = 0; i < 8; ++i)
            if (i / 4 * 8 + i % 2 > high + i / 2 % 2 * 8) x[i] = -__builtin_huge_valf();
        }
#pragma unroll
        for (int r = 0; r < 2; ++r)
          top[r] = fmaxf(top[r], fmaxf(fmaxf(x[element_at(0, r, 0)], x[element_at(0, r, 1)]),
                                       fmaxf(x[element_at(1, r, 0)], x[element_at(1, r, 1)])));
      }
    };
    wgmma_wait<Count - 1>();
    wgmma_hold(s[0]);
    find_top(0);
    if constexpr (Count > 1) {
      wgmma_wait<Count - 2>();
      wgmma_hold(s[1]);
      find_top(1);
    }
    if constexpr (Count > 2) {
      wgmma_wait<0>();
      wgmma_hold(s[2]);
      find_top(2);
    }
    with_scores();
    float shift[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 1));
      top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 2));
      shift[r] = top[r] * problem.rate;
    }
    if constexpr (!First) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float shrink = exp2_approx(softmax.top[r] * problem.rate - shift[r]);
        softmax.sum[r] *= shrink;
#pragma unroll
        for (int i = 0; i < ValueSize / 8; ++i) {
          o[element_at(i, r, 0)] *= shrink;
          o[element_at(i, r, 1)] *= shrink;
        }
      }
    }
    std::uint32_t visible = sight.visible, weights[Count][4][4];
    asm volatile("" : "+r"(visible));  // forces a new test of the bits: keeping predicates costs more
    softmax.top[0] = top[0];
    softmax.top[1] = top[1];
    const auto weigh = [&](int c) {
#pragma unroll
      for (int g = 0; g < 4; ++g) {
        if (!(visible >> (4 * c + g) & 1)) {
#pragma unroll
          for (int i = 0; i < 4; ++i) weights[c][g][i] = 0;
          continue;
        }
        float* const x = s[c] + 8 * g;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          x[i] = exp2_approx(fmaf(x[i], problem.rate, -shift[i / 2 % 2]));
          softmax.sum[i / 2 % 2] += x[i];
        }
        pack_operand<T>(weights[c][g], s[c], g);
      }
    };
    const auto apply = [&](int c) {
      const std::uint64_t values = descriptor<value_row>(tile[c] + key_bytes, rows * value_row);
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < 4; ++i)
        wgmma<T, ValueSize, true>(o, weights[c][i], advanced(values, i * 16 * value_row), !First || c + i > 0);
      wgmma_commit();
    };
    if constexpr (is_large) {  // no registers for scores next to the output
#pragma unroll
      for (int c = 0; c < Count; ++c) weigh(c);
#pragma unroll
      for (int c = 0; c < Count; ++c) apply(c);
    } else {
#pragma unroll
      for (int c = 0; c < Count; ++c) {
        weigh(c);
        apply(c);
      }
    }
    at_end();
    wgmma_wait<0>();
    wgmma_hold(o);
  }

  // Per row of the thread: the factor for o, and the log of the softmax's denominator.
  struct Result {
    float factor[2], lse[2];
  };
  __device__ Result finish(const Softmax& softmax) const {
    Result result;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = softmax.sum[r];  // at least 1, the weight of the largest
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      result.factor[r] = reciprocal_approx(sum);
      result.lse[r] = (softmax.top[r] * problem.rate + log2_approx(sum)) * (1 / log2_e);
    }
    return result;
  }

  // Each warp stores its own rows through shared memory. `lse` points to the segment's first entry; it is written last,
  // because a fence waits for all earlier writes.
  __device__ void store(const BandForwardTask& task, std::int32_t tile, int warp, const float (&o)[ValueSize / 2],
                        const Result& result, float* lse) const {
    const int lane = this_lane();
    const std::int32_t first = tile * rows + warp * warp_rows;
    const float(&factor)[2] = result.factor;
    char* const to = shared + sharer * sharer_bytes + outputs_at + warp * warp_output_bytes;
#pragma unroll
    for (int box = 0; box < value_boxes; ++box) {
      if (lane == 0) store_wait<0>();  // the previous box has been stored
      __syncwarp();
#pragma unroll
      for (int j = 8 * box; j < std::min(8 * box + 8, ValueSize / 8); j += 2) {
        const int chunk = (j + lane / 16) % (value_row / 16);
        const int at = lane % 16 * value_row + chunk * 16, swizzled = at ^ ((at >> 7) % (value_row / 16)) << 4;
        const float* d = o + 4 * j;
        store_matrices(to + swizzled, pack<T>(d[0] * factor[0], d[1] * factor[0]),
                       pack<T>(d[2] * factor[1], d[3] * factor[1]), pack<T>(d[4] * factor[0], d[5] * factor[0]),
                       pack<T>(d[6] * factor[1], d[7] * factor[1]));
      }
      proxy_fence();
      __syncwarp();
      if (lane == 0 && first < task.length) {
        tma_store(task.map_of(problem.o), task.corner(first, box * 64), to);
        store_commit();
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const std::int32_t entry = first + lane / 4 + 8 * r;
      if (lane % 4 == 0 && entry < task.length) lse[entry * task.step] = result.lse[r];
    }
  }

  // ---- The loop over query tiles ----

  // The key tiles of a segment that a consumer has not released yet.
  struct Held {
    std::int32_t first = 0, expected = 0;  // tiles: the first one, and the first that it does not know to be there
    int oldest = 0;                        // the first one's stage
    RingSlot arriving;                     // that of `expected`
  };
  __device__ void wait_until(Held& held, std::int32_t end) const {
#pragma unroll 1
    for (; held.expected < end; ++held.expected) {
      barrier_wait(key_full(held.arriving.index), held.arriving.parity);
      held.arriving.advance(problem.stages);
    }
  }
  // A tile is there before it is released, as its stage may still be another's; and every lane knows, as the next tile
  // but one in that stage looks like it.
  __device__ void release_until(Held& held, std::int32_t end) const {
    if constexpr (sharers > 1) {
      wait_until(held, end);
      __syncwarp();
    }
#pragma unroll 1
    for (; held.first < end; ++held.first) {
      if (this_lane() == 0) barrier_arrive(key_empty(held.oldest));
      held.oldest = next_slot(held.oldest, problem.stages);
    }
  }

  __device__ void consume(BandForwardTask task) const {
    const int lane = this_lane();
    const int warp =
        __shfl_sync(~0u, static_cast<int>(threadIdx.x / 32 % warps), 0);  // uniform, as the compiler can tell
    RingSlot query_slot;
    float* const of_head =
        problem.lse +
        (static_cast<std::int64_t>(task.sequence) * static_cast<std::int32_t>(problem.by_heads.value) + task.head) *
            problem.n;
    Held held;
    int until_turn = sharer;  // query tiles of other sharers before the next one of this one
    for (; task.enter(problem); ++task.segment) {
      if (task.begin >= task.end) continue;  // this segment is shorter than others
      held.first = held.expected = first_key_tile(task.begin);
      float* lse = of_head + task.base;
      asm("" : "+l"(lse));  // computed once
      Sight sight;
      bool was_usual = false;  // all tiles whose windows begin within the row set see the same keys
      std::int32_t tile = task.begin + until_turn;
      if constexpr (sharers > 1) release_until(held, tile < task.end ? first_key_tile(tile) : task.end);
      for (; tile < task.end; tile += sharers) {
        barrier_wait(query_full(sharer, query_slot.index), query_slot.parity);
        wait_until(held, tile + 1);
        const bool is_usual = problem.limit.block <= 0 && tile * rows >= problem.limit.window;
        if (!is_usual || !was_usual) sight = sight_of(tile, held.first, warp);
        was_usual = is_usual;
        const char* const query_tile = queries(sharer, query_slot.index);
        float o[ValueSize / 2];
        Softmax softmax = {{}, {0, 0}};
        Result result;
        const std::int32_t seen = tile - held.first + 1;
        const auto with_scores = [&](bool last) {
          __syncwarp();
          if (last && lane == 0) barrier_arrive(query_empty(sharer, query_slot.index));
        };
        // Computed after every turn as if it were the last, because only the last result is kept.
        const auto at_end = [&] { result = finish(softmax); };
        const auto begin_with = [&](auto count) {
          attend<decltype(count)::value, true>(
              o, softmax, sight, query_tile, held.oldest, [&] { with_scores(seen == decltype(count)::value); }, at_end);
        };
        const auto end_with = [&](auto count) {
          const std::int32_t done = seen - decltype(count)::value;
          const int stage = held.oldest + done;
          attend<decltype(count)::value, false>(
              o, softmax, sight.from_tile(done), query_tile, stage < problem.stages ? stage : stage - problem.stages,
              [&] { with_scores(true); }, at_end);
        };
        constexpr std::integral_constant<int, 1> one;
        constexpr std::integral_constant<int, 2> two;
        constexpr std::integral_constant<int, 3> three;
        if (seen == 1) {
          begin_with(one);
        } else if (seen == 3 || seen == 5 || (is_large && seen == 4)) {
          begin_with(three);
          if constexpr (is_large) {
            if (seen == 4) end_with(one);
          } else {
            if (seen == 5) end_with(two);
          }
        } else {
          begin_with(two);
          if constexpr (!is_large)
            if (seen == 4) end_with(two);
        }
        const std::int32_t next = tile + sharers;
        __syncwarp();
        query_slot.advance(query_slots);
        release_until(held, next >= task.end ? task.end : is_usual ? held.first + sharers : first_key_tile(next));
        store(task, tile, warp, o, result, lse);
      }
      until_turn = tile - task.end;
    }
    if (lane == 0) store_wait<0>();
  }
};

template <class T, int KeySize, int ValueSize, bool Shares>
__global__ void __launch_bounds__(BandForward<T, KeySize, ValueSize, Shares>::threads, 1)
    forward_band(const __grid_constant__ BandForwardProblem problem) {
  using B = BandForward<T, KeySize, ValueSize, Shares>;
  extern __shared__ char memory[];
  char* const shared = memory + bytes_to_tile(memory);
  const auto band_of = [&](int task, int sharer) {
    return B{problem, shared + task * B::task_bytes(problem.stages), sharer};
  };
  const auto task_of = [&](int task) {
    return BandForwardTask(problem, static_cast<std::int32_t>(blockIdx.x) * B::tasks + task);
  };
  const int group = uniform(this_warpgroup());
  if (group < B::tasks && threadIdx.x % 128 == 0) band_of(group, 0).init_barriers();
  __syncthreads();
  if (group == B::groups) {
    registers_give<B::loader_registers>();
    const int served = this_warp() - B::groups * 4;
    if (served < B::tasks && this_lane() == 0) band_of(served, 0).load(task_of(served));
  } else {
    registers_take<B::consumer_registers>();
    const int task = B::tasks > 1 ? group : 0;
    band_of(task, group - task).consume(task_of(task));
  }
}

}  // namespace longstride::kernels::cuda::sm90
