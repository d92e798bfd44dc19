// Attention forward over a band: queries and keys are one row set, cut into tiles of 64 rows, and a query tile sees the
// few key tiles up to its own. A task is a run of query tiles of one class, or all tiles of a chain of classes: keys
// and values pass through a ring once and stay while a query tile of the task sees them, and the next tiles are loaded
// while this one is computed.
//
// The scores of three key tiles are in registers at once: one maximum, one pass of exponentials, one sum, and no
// rescaling. A query tile that sees more processes them in several rounds, as an online softmax. A warp processes a key
// tile at once if its sixteen queries see all of it, and otherwise sixteen keys at a time, and only those that they
// see; visibility follows from two numbers per row.
#pragma once
#include <algorithm>
#include <type_traits>

#include "kernels/attention/sink.h"
#include "kernels/attention/sm90/band/band_forward_block.cuh"
#include "kernels/base/approximate.cuh"
#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/lane.cuh"
#include "kernels/gpu/shared.cuh"
#include "kernels/gpu/wgmma.cuh"

namespace longstride::kernels::cuda::sm90 {

template <class T, int KeySize, int ValueSize, bool Shares, int Reach>
struct BandForward : BandForwardBlock<KeySize, ValueSize, Shares, Reach> {
  using Block = BandForwardBlock<KeySize, ValueSize, Shares, Reach>;
  using Block::groups, Block::is_large, Block::is_far, Block::sharers, Block::query_slots, Block::rows, Block::warps,
      Block::warp_rows;
  using Block::key_bytes, Block::value_boxes, Block::value_row, Block::warp_output_bytes, Block::sharer_bytes;
  using Block::outputs_at, Block::keys, Block::queries, Block::first_key_tile;
  using Block::problem, Block::shared, Block::sharer;
  using Block::query_full, Block::query_empty, Block::key_full, Block::key_empty;

  // ---- One query tile ----

  // The keys that a warp's sixteen query rows see, counted from the first key of a key tile. A group is sixteen keys.
  using Groups = std::conditional_t<is_far, std::uint64_t, std::uint32_t>;
  struct Sight {
    int own;              // the group of the rows themselves
    Groups visible, cut;  // groups that some row sees, and those whose beginning some row does not see
    std::int32_t low[2];  // the first keys that the thread's two rows see, less the thread's first column

    __device__ Sight from_tile(int tile) const {
      return {own - 4 * tile, visible >> 4 * tile, cut >> 4 * tile, {low[0] - rows * tile, low[1] - rows * tile}};
    }
  };
  // documents: the first key of every entry's document, or null.
  __device__ Sight sight_of(const BandForwardTask& task, const std::int32_t* documents, std::int32_t tile,
                            std::int32_t first_key_tile, int warp) const {
    const std::int32_t begin = first_key_tile * rows, first = tile * rows + warp * warp_rows;
    const int lane = this_lane(), column = 2 * (lane % 4);
    const BandLimit& limit = problem.limit;
    std::int32_t low[2] = {limit.low(first + lane / 4), limit.low(first + lane / 4 + 8)}, lowest_key = limit.low(first),
                 highest = limit.low(first + warp_rows - 1);
    if (documents != nullptr) {
#pragma unroll
      for (int r = 0; r < 2; ++r)
        low[r] = max(low[r], documents[min(first + lane / 4 + 8 * r, task.length - 1)] - task.base);
      lowest_key = __shfl_sync(~0u, low[0], 0);
      highest = __shfl_sync(~0u, low[1], 31);
    }
    const int own = (first - begin) / warp_rows, from = max(lowest_key - begin, 0) / warp_rows,
              whole_from = max(highest - begin + warp_rows - 1, 0) / warp_rows;
    return {own,
            (Groups{2} << own) - (Groups{1} << from),
            (Groups{1} << whole_from) - 1,
            {low[0] - begin - column, low[1] - begin - column}};
  }

  // True if the warp's rows see all of a tile's keys. One test instead of eight, as short branches cost more than they
  // skip.
  __device__ static bool is_whole(const Sight& sight, int tile) {
    return (sight.visible >> 4 * tile & 15) == 15 && (sight.cut >> 4 * tile & 15) == 0;
  }

  // Per row of the thread: the largest score, and the sum of the weights relative to it.
  struct Softmax {
    float top[2], sum[2];
  };
  // Less than any score, and finite so that the weights of a row that sees no key yet are 0. A power of two, so that
  // its product with the rate is exact: nothing is left where that is subtracted from itself in one operation.
  static constexpr float lowest = -0x1p100f;

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
    const auto raise_top = [&](const float* x) {  // by the scores of a group
#pragma unroll
      for (int r = 0; r < 2; ++r)
        top[r] = fmaxf(top[r], fmaxf(fmaxf(x[element_at(0, r, 0)], x[element_at(0, r, 1)]),
                                     fmaxf(x[element_at(1, r, 0)], x[element_at(1, r, 1)])));
    };
    const auto find_top = [&](int c) {
      // Only a round's last tile may be the queries' own, and not in every round if there are many.
      if ((c < Count - 1 || (is_far && sight.own / 4 != c)) && is_whole(sight, c)) {
#pragma unroll
        for (int g = 0; g < 4; ++g) raise_top(s[c] + 8 * g);
        return;
      }
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
        raise_top(x);
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
    auto visible = static_cast<std::uint32_t>(sight.visible);
    std::uint32_t weights[Count][4][4];
    asm volatile("" : "+r"(visible));  // forces a new test of the bits: keeping predicates costs more
    softmax.top[0] = top[0];
    softmax.top[1] = top[1];
    const auto weigh_group = [&](int c, int g) {
      float* const x = s[c] + 8 * g;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        x[i] = exp2_approx(fmaf(x[i], problem.rate, -shift[i / 2 % 2]));
        softmax.sum[i / 2 % 2] += x[i];
      }
      pack_operand<T>(weights[c][g], s[c], g);
    };
    const auto weigh = [&](int c) {
      if (c < Count - 1 && (visible >> 4 * c & 15) == 15) {
#pragma unroll
        for (int g = 0; g < 4; ++g) weigh_group(c, g);
        return;
      }
#pragma unroll
      for (int g = 0; g < 4; ++g) {
        if (visible >> (4 * c + g) & 1) {
          weigh_group(c, g);
          continue;
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) weights[c][g][i] = 0;
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
    if constexpr (is_large && groups == 3) {  // no registers for scores next to the output
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

  // Each warp stores its own rows through shared memory. `lse` points to the class's first entry; it is written last,
  // because a fence waits for all earlier writes.
  __device__ void store(const BandForwardTask& task, std::int32_t tile, int warp, const float (&o)[ValueSize / 2],
                        Result result, float* lse) const {
    const int lane = this_lane();
    if (problem.sink != nullptr) {
      const float logit = problem.sink[task.head];
#pragma unroll
      for (int r = 0; r < 2; ++r) join_sink(logit, result.factor[r], result.lse[r]);
    }
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

  // The key tiles of a class that a consumer has not released yet.
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
    for (; task.enter(problem); ++task.residue) {
      if (task.begin >= task.end) continue;  // this class is shorter than others
      held.first = held.expected = first_key_tile(task.begin);
      float* lse = of_head + task.base;
      asm("" : "+l"(lse));  // computed once
      const std::int32_t* documents = problem.bounds.of(task.sequence, task.head).begin;
      if (documents != nullptr) documents += task.base;
      Sight sight;
      bool was_usual = false;  // all tiles whose windows begin within the row set see the same keys
      std::int32_t tile = task.begin + until_turn;
      if constexpr (sharers > 1) release_until(held, tile < task.end ? first_key_tile(tile) : task.end);
      for (; tile < task.end; tile += sharers) {
        barrier_wait(query_full(sharer, query_slot.index), query_slot.parity);
        if constexpr (!is_far) wait_until(held, tile + 1);
        const bool is_usual = documents == nullptr && problem.limit.block <= 0 && tile * rows >= problem.limit.window;
        if (!is_usual || !was_usual) sight = sight_of(task, documents, tile, held.first, warp);
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
          if constexpr (is_far) wait_until(held, held.first + decltype(count)::value);
          attend<decltype(count)::value, true>(
              o, softmax, sight, query_tile, held.oldest, [&] { with_scores(seen == decltype(count)::value); }, at_end);
        };
        const auto continue_with = [&](auto count, std::int32_t done) {
          const std::int32_t end = done + decltype(count)::value;
          if constexpr (is_far) wait_until(held, held.first + end);
          const int stage = held.oldest + done;
          attend<decltype(count)::value, false>(
              o, softmax, sight.from_tile(done), query_tile, stage < problem.stages ? stage : stage - problem.stages,
              [&] { with_scores(end == seen); }, at_end);
        };
        constexpr std::integral_constant<int, 1> one;
        constexpr std::integral_constant<int, 2> two;
        constexpr std::integral_constant<int, 3> three;
        if (seen == 1) {
          begin_with(one);
        } else if (is_far ? seen % 2 != 0 : seen == 3 || seen == 5 || (is_large && seen == 4)) {
          begin_with(three);
          if constexpr (is_large) {
            if (seen == 4) continue_with(one, seen - 1);
          } else if constexpr (!is_far) {
            if (seen == 5) continue_with(two, seen - 2);
          }
        } else {
          begin_with(two);
          if constexpr (!is_large && !is_far)
            if (seen == 4) continue_with(two, seen - 2);
        }
        if constexpr (is_far) {
#pragma unroll 1
          for (std::int32_t done = 2 + seen % 2; done < seen; done += 2) continue_with(two, done);
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

template <class T, int KeySize, int ValueSize, bool Shares, int Reach>
__global__ void __launch_bounds__(BandForward<T, KeySize, ValueSize, Shares, Reach>::threads, 1)
    forward_band(const __grid_constant__ BandForwardProblem problem) {
  using B = BandForward<T, KeySize, ValueSize, Shares, Reach>;
  extern __shared__ char memory[];
  char* const shared = memory + bytes_to_tile(memory);
  const auto band_of = [&](int task, int sharer) {
    return B{{problem, shared + task * B::task_bytes(problem.stages), sharer}};
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
