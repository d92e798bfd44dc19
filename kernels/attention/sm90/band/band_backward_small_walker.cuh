// A warpgroup that walks over key tiles in attention backward over a band, for heads of at most 32.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/band/band_backward_small_block.cuh"

namespace longstride::kernels::cuda::sm90 {

template <class T>
struct BandBackwardWalker : BandBackwardSmallBlock<T> {
  using Block = BandBackwardSmallBlock<T>;
  using Block::key_bytes, Block::tile_bytes, Block::ds_bytes, Block::rows;
  using Block::problem, Block::shared, Block::lane, Block::warp, Block::task, Block::at, Block::group;
  using Block::walkers, Block::slots, Block::late_rooms;
  using typename Block::Seen, typename Block::Statistics;

  __device__ explicit BandBackwardWalker(const Block& block) : Block(block) {}

  // ---- Weights ----

  // Groups of sixteen queries of a tile, one bit each: those that see some of the warp's keys, those that come before
  // one of the keys, and those that come after the end of one key's visibility.
  struct Groups {
    std::uint32_t visible, early, late;
  };
  __device__ static Groups groups_of(const Seen& seen, std::int32_t begin) {
    const auto below = [](std::int32_t x) { return (1u << min(max(x, 0), 4)) - 1; };  // groups below the x-th
    const std::int32_t own = (seen.first - begin) >> 4;
    return {below((seen.last_end - begin + 15) >> 4) & ~below(own), below(own + 1),
            ~below((seen.first_end - begin) >> 4)};
  }

  // Turns S into P, and P into the product's operand. Full: every key is seen by every query.
  template <bool Full>
  __device__ void weigh(float (&s)[rows / 2], std::uint32_t (&weights)[4][4], float rate, const Statistics& of,
                        const Seen& seen, const Groups& groups, std::int32_t begin) const {
    const int column = 2 * (lane % 4);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (!Full && !(groups.visible >> k & 1)) {
#pragma unroll
        for (int i = 0; i < 4; ++i) weights[k][i] = 0;
        continue;
      }
      if (!Full && groups.early >> k & 1) {
        const std::int32_t from = seen.first + lane / 4 - begin - column;
#pragma unroll
        for (int i = 8 * k; i < 8 * k + 8; ++i)
          if (i / 4 * 8 + i % 2 < from + i / 2 % 2 * 8) s[i] = -__builtin_huge_valf();
      }
      if (!Full && groups.late >> k & 1) {
#pragma unroll
        for (int i = 8 * k; i < 8 * k + 8; ++i)
          if (i / 4 * 8 + i % 2 >= seen.end[i / 2 % 2] - begin - column) s[i] = -__builtin_huge_valf();
      }
#pragma unroll
      for (int j = 2 * k; j < 2 * k + 2; ++j) {
        const float2 shift = *reinterpret_cast<const float2*>(of.shift + 8 * j + column);
#pragma unroll
        for (int i = 4 * j; i < 4 * j + 4; ++i) s[i] = exp2_approx(fmaf(s[i], rate, i % 2 == 0 ? shift.x : shift.y));
      }
      pack_operand<T>(weights[k], s, k);
    }
  }
  // Turns dP into dS, and dS into the product's operand.
  template <bool Full>
  __device__ void differentiate(float (&dp)[rows / 2], std::uint32_t (&weights)[4][4], const float (&p)[rows / 2],
                                const Statistics& of, std::uint32_t visible) const {
    const int column = 2 * (lane % 4);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (!Full && !(visible >> k & 1)) {
#pragma unroll
        for (int i = 0; i < 4; ++i) weights[k][i] = 0;
        continue;
      }
#pragma unroll
      for (int j = 2 * k; j < 2 * k + 2; ++j) {
        const float2 delta = *reinterpret_cast<const float2*>(of.delta + 8 * j + column);
#pragma unroll
        for (int i = 4 * j; i < 4 * j + 4; ++i) dp[i] = p[i] * (dp[i] - (i % 2 == 0 ? delta.x : delta.y));
      }
      pack_operand<T>(weights[k], dp, k);
    }
  }

  // ---- Query tiles that others wait for ----

  // The first tile that the walker has not yet passed, and its slot.
  struct Progress {
    std::int32_t tile;
    RingSlot slot;
  };
  // The walker has no more use for query tiles below `to`, all of which have arrived.
  __device__ void pass(Progress& passed, std::int32_t to) const {
#pragma unroll 1
    for (; passed.tile < to; ++passed.tile) {
      barrier_arrive(this->query_empty(passed.slot.index));
      passed.slot.advance(slots);
    }
  }
  // The walker has no more dS for a query tile.
  __device__ void give(Progress& given) const {
    if (lane == 0) barrier_arrive(this->ds_full(given.slot.index));
    ++given.tile;
    given.slot.advance(this->ds_slots_of(problem.reach));
  }
  // The same for all below `to`, for which it never has any.
  __device__ void give(Progress& given, std::int32_t to) const {
#pragma unroll 1
    while (given.tile < to) {
      barrier_wait(this->ds_empty(given.slot.index), given.slot.parity ^ 1);
      __syncwarp();  // or the barrier might be two phases further before the warp's last thread looks
      give(given);
    }
  }
  // Stores a pair's dS where the server finds it, once it has been announced. `late`: parities of the walker's late
  // rooms, one bit each. Returns whether the walker has no more dS for the query tile.
  __device__ bool hand_over(const std::uint32_t (&ds)[4][4], std::int32_t query, std::int32_t key,
                            const Progress& given, std::uint32_t& late) const {
    const int ahead = query - key, room = query & 1, late_room = group * late_rooms + room;
    const bool is_late = ahead >= walkers;  // the walker's next key tile adds to this query tile
    if (is_late) {
      barrier_wait(this->late_empty(late_room), (late >> room & 1) ^ 1);
      late ^= 1u << room;
    } else {
      barrier_wait(this->ds_empty(given.slot.index), given.slot.parity ^ 1);
    }
    const int tile = is_late ? this->late_tile(late_room) : this->ds_tile(given.slot.index, ahead);
    this->put_ds(shared + at.ds + tile * ds_bytes, ds);
    return !is_late;
  }
  // Announces the dS of a query tile. Not right after it was stored: the fence would wait for the stores.
  __device__ void announce(bool& owed, Progress& given) const {
    if (!owed) return;
    owed = false;
    proxy_fence();
    __syncwarp();
    give(given);
  }
  __device__ void store(const BandBackwardPlace& place, std::int32_t key, const float (&dk)[small_head / 2],
                        const float (&dv)[small_head / 2]) const {
    const std::int32_t entry = (key - place.first) * rows;
    const int room = group * tile_bytes;
    this->forget();
    this->put(room, dk, problem.scale);
    this->put(room + key_bytes, dv, 1.0f);
    proxy_fence();
    __syncwarp();
    if (lane == 0) {
      this->leave(problem.dk_maps, place.base, place.length, entry, room);
      this->leave(problem.dv_maps, place.base, place.length, entry, room + key_bytes);
      store_commit();
    }
  }

  __device__ void walk() const {
    const float rate = problem.scale * log2_e;
    const std::int32_t first = this->first_key();
    const int stages = this->stages_of(problem.reach);
    Progress passed{task.begin, {}}, given{task.begin, {}};
    std::uint32_t late = 0;
    bool owed = false;  // the dS of a query tile is stored, but not announced
    RingSlot own_slot, stage;
    std::int32_t own = task.begin;  // the first query tile that sees this or a later key tile
    stage.advance(group, stages);
    give(given, min(first + group, task.end));
    for (std::int32_t key = first + group; key < task.end; key += walkers) {
      const bool owned = key >= task.begin;
      const char* const keys = this->key_tile(stage.index);
      const BandBackwardPlace place = this->place_of(key);
      const Seen seen = this->seen_of(key - place.first);
      const std::int32_t seen_end = this->query_end(place, key), end = owned ? seen_end : min(seen_end, task.end);
      const std::int32_t skipped = max(key, task.begin) - own;
      own += skipped;
      own_slot.advance(skipped, slots);
      float dk[small_head / 2] = {}, dv[small_head / 2] = {};
      barrier_wait(this->key_full(stage.index), stage.parity);
      RingSlot slot = own_slot;
      for (std::int32_t query = own; query < end; ++query) {
        const char* const queries = this->query_tile(slot.index);
        const char* const dout = queries + key_bytes;
        const Statistics& of = this->statistics(slot.index);
        float s[rows / 2], dp[rows / 2];
        barrier_wait(this->query_full(slot.index), slot.parity);
        wgmma_fence();
        multiply_tiles<T, small_head>(s, keys, queries);
        multiply_tiles<T, small_head>(dp, keys + key_bytes, dout);
        announce(owed, given);
        barrier_wait(this->statistics_full(slot.index), slot.parity);
        wgmma_wait<1>();
        wgmma_hold(s);
        pass(passed, min(query, key + walkers));
        const std::int32_t begin = (query - place.first) * rows;
        const bool full = seen.first + 15 <= begin && seen.first_end >= begin + rows;
        Groups groups = {};
        std::uint32_t weights[4][4];
        if (full) {
          weigh<true>(s, weights, rate, of, seen, groups, begin);
        } else {
          groups = groups_of(seen, begin);
          weigh<false>(s, weights, rate, of, seen, groups, begin);
        }
        if (owned) {
          this->template add_product<small_head>(dv, weights, dout);
          wgmma_wait<1>();
        } else {
          wgmma_wait<0>();
        }
        wgmma_hold(dp);
        std::uint32_t visible = groups.visible, ds_weights[4][4];
        asm volatile("" : "+r"(visible));  // forces a new test of the bits: keeping predicates costs more
        if (full)
          differentiate<true>(dp, ds_weights, s, of, visible);
        else
          differentiate<false>(dp, ds_weights, s, of, visible);
        if (owned) this->template add_product<small_head>(dk, ds_weights, queries);
        if (query < task.end) owed = hand_over(ds_weights, query, key, given, late);
        slot.advance(slots);
        wgmma_wait<0>();
        wgmma_hold(dk);
        wgmma_hold(dv);
      }
      announce(owed, given);
      pass(passed, min(end, key + walkers));
      give(given, min(key + walkers, task.end));
      if (owned) store(place, key, dk, dv);
      stage.advance(walkers, stages);
    }
    this->forget();
  }
};

}  // namespace longstride::kernels::cuda::sm90
