// Attention backward over a band, for heads of at most 32: the loops and products of band_backward_large_kernel.cuh in
// fewer instructions. Groups of sixteen queries that see none of a warp's keys are skipped in every step; gradients are
// stored through shared memory, which larger heads cannot spare, by TMA; and a block may own all tiles of several short
// segments.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/attention/sm90/band/band_backward_math.cuh"
#include "kernels/attention/sm90/general/pass_shape.h"

namespace longstride::kernels::cuda::sm90 {

struct BandBackwardSmallProblem : BandBackwardProblem {
  RowMaps dq_maps, dk_maps, dv_maps;  // boxes of a warp's sixteen rows
  // A block owns `run` tiles of a segment, or all tiles of `chain` consecutive segments. The tiles of a chain are
  // numbered consecutively, and every segment counts as many as the longest.
  std::int32_t chain;
  Divisor by_heads, by_chains, by_period;
  Divisor by_tiles;  // tiles per segment of a chain; otherwise larger than any tile number
};

struct BandBackwardSmallTask : BandBackwardTask {
  std::int32_t offset;   // the number of this segment's first tile
  std::int32_t counted;  // entries covered by its tiles

  __device__ explicit BandBackwardSmallTask(const BandBackwardSmallProblem& problem) {
    const auto block = static_cast<std::int32_t>(blockIdx.x), heads = static_cast<std::int32_t>(problem.by_heads.value),
               chains = static_cast<std::int32_t>(problem.by_chains.value);
    const std::int32_t rest = problem.by_heads.quotient(block);
    head = block - rest * heads;
    const std::int32_t run = problem.by_chains.quotient(rest);
    segment = (rest - run * chains) * problem.chain;
    sequence = static_cast<std::int32_t>(blockIdx.y);
    step = problem.set.run >= problem.set.period ? 1 : problem.set.period;
    offset = 0;
    enter(problem);
    counted = problem.chain > 1 ? problem.set.length : length;
    const std::int32_t tiles = (counted + band_rows - 1) / band_rows;
    begin = run * problem.run;
    end = problem.chain > 1 ? min(problem.chain, problem.segments - segment) * tiles : min(begin + problem.run, tiles);
  }
  __device__ void enter(const BandBackwardSmallProblem& problem) {
    base = problem.set.base + segment;
    length = step == 1 ? problem.set.length : problem.by_period.quotient(problem.n - base + step - 1);
  }
  // Moves to the segment of this tile.
  __device__ void go_to(const BandBackwardSmallProblem& problem, std::int32_t tile) {
    const auto tiles = static_cast<std::int32_t>(problem.by_tiles.value);
    if (tile - offset < tiles) return;
    offset += tiles;
    ++segment;
    enter(problem);
  }
};

template <class T, int KeySize, int ValueSize, int Blocks>
struct BandBackwardSmall : BandBackward<T, KeySize, ValueSize, BandBackwardSmallProblem> {
  using Common = BandBackward<T, KeySize, ValueSize, BandBackwardSmallProblem>;
  using Common::key_boxes, Common::value_boxes, Common::key_bytes, Common::tile_bytes, Common::ds_bytes,
      Common::dq_bytes;
  using Common::problem, Common::shared, Common::thread, Common::lane, Common::warp, Common::loads;
  using Common::threads, Common::rows, Common::key_row, Common::value_row;
  using typename Common::OutputRow, typename Common::Seen, typename Common::Statistics;
  static constexpr int blocks = Blocks;  // per multiprocessor, limited by registers

  // Shared memory, from a multiple of 1024 bytes.
  struct SharedLayout {
    int keys = 0, ds = 0, dq = 0, gradients = 0, statistics = 0, barriers = 0, end = 0;

    constexpr SharedLayout(int slots, int reach, int key_stages, int ds_stages) {
      keys = slots * tile_bytes;
      ds = keys + key_stages * tile_bytes;
      dq = ds + ds_stages * ds_bytes;
      gradients = dq + (reach - 1) * dq_bytes;
      statistics = gradients + tile_bytes;
      barriers = statistics + slots * static_cast<int>(sizeof(Statistics));
      end = barriers + (slots + key_stages) * 8;
    }
  };
  static constexpr std::size_t shared_bytes(int slots, int reach, int key_stages, int ds_stages) {
    return static_cast<std::size_t>(SharedLayout(slots, reach, key_stages, ds_stages).end) + 1024;
  }

  BandBackwardSmallTask task;
  const SharedLayout at;

  __device__ BandBackwardSmall(const BandBackwardSmallProblem& p, const BandBackwardSmallTask& t, char* memory)
      : Common(p, memory), task(t), at(p.slots, p.reach, p.key_stages, p.ds_stages) {}

  __device__ std::uint64_t* query_barrier(int slot) const {
    return reinterpret_cast<std::uint64_t*>(shared + at.barriers) + slot;
  }
  __device__ std::uint64_t* key_barrier(int stage) const { return query_barrier(problem.slots + stage); }
  __device__ Statistics& statistics(int slot) const {
    return reinterpret_cast<Statistics*>(shared + at.statistics)[slot];
  }

  // ---- Loads, by one thread ----

  // The location of a tile of this or a later segment.
  struct TileLocation {
    std::int32_t base, entry;
  };
  __device__ TileLocation location_of(std::int32_t tile, std::int32_t first_base) const {
    const std::int32_t segment = problem.by_tiles.quotient(tile);
    return {first_base + segment, (tile - segment * static_cast<std::int32_t>(problem.by_tiles.value)) * rows};
  }
  __device__ Coordinates corner(const TileLocation& location, int box) const {
    const bool natural = task.step == 1;
    return {{box * 64, task.head, natural ? location.base + location.entry : location.base,
             natural ? 0 : location.entry, task.sequence}};
  }
  __device__ static const CUtensorMap* map_of(const RowMaps& maps, std::int32_t base) {
    return base < maps.rest ? &maps.longer : &maps.complete;
  }
  __device__ void load(char* to, const RowMaps& key_sized, const RowMaps& value_sized, const TileLocation& location,
                       std::uint64_t* barrier) const {
    barrier_arrive_expect(barrier, tile_bytes);
    for (int i = 0; i < key_boxes; ++i)
      tma_load(to + i * rows * key_row, map_of(key_sized, location.base), corner(location, i), barrier);
    for (int i = 0; i < value_boxes; ++i)
      tma_load(to + key_bytes + i * rows * value_row, map_of(value_sized, location.base), corner(location, i), barrier);
  }

  // The next tiles to load, and their destinations.
  struct Loads {
    std::int32_t base, query, query_end, key, key_end;  // base of the block's first segment
    int slot = 0, stage = 0;
  };
  // Loads every tile for which there is room: query tiles below `queries` and key tiles below `keys` are finished.
  __device__ void load_ahead(Loads& next, std::int32_t queries, std::int32_t keys) const {
    for (; next.key < next.key_end && next.key < keys + problem.key_stages; ++next.key) {
      load(shared + at.keys + next.stage * tile_bytes, problem.k, problem.v, location_of(next.key, next.base),
           key_barrier(next.stage));
      next.stage = next_slot(next.stage, problem.key_stages);
    }
    for (; next.query < next.query_end && next.query < queries + problem.slots; ++next.query) {
      const TileLocation location = location_of(next.query, next.base);
      load(shared + next.slot * tile_bytes, problem.q, problem.dout, location, query_barrier(next.slot));
      for (int i = 0; i < value_boxes; ++i) tma_prefetch(map_of(problem.o, location.base), corner(location, i));
      next.slot = next_slot(next.slot, problem.slots);
    }
  }

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
  // ---- Gradients ----

  // The partial dQ of a tile, four elements at a time so that a warp accesses 128 contiguous bytes.
  __device__ float4* partial(int slot) const {
    return reinterpret_cast<float4*>(shared + at.dq + slot * dq_bytes) + thread;
  }

  // Stores a warp's rows of a gradient in shared memory, in TMA's order, `to_byte` bytes into the room for gradients.
  template <int Size>
  __device__ void put(int to_byte, const float (&values)[Size / 2], float factor) const {
    constexpr int row_bytes = std::min(Size, 64) * 2;
    char* const to = shared + at.gradients + to_byte + warp * 16 * Size * 2;
#pragma unroll
    for (int j = 0; j < Size / 8; j += 2) {
      const int chunk = (j + lane / 16) % (row_bytes / 16), box = j / 8;
      const int within = lane % 16 * row_bytes + chunk * 16, swizzled = within ^ ((within >> 7) % (row_bytes / 16))
                                                                                     << 4;
      const float* d = values + 4 * j;
      store_matrices(to + box * 16 * row_bytes + swizzled, pack<T>(d[0] * factor, d[1] * factor),
                     pack<T>(d[2] * factor, d[3] * factor), pack<T>(d[4] * factor, d[5] * factor),
                     pack<T>(d[6] * factor, d[7] * factor));
    }
  }
  // Copies them from there to the gradient. Called by one lane, after proxy_fence and __syncwarp.
  template <int Size>
  __device__ void leave(const RowMaps& maps, std::int32_t tile, int from_byte) const {
    constexpr int row_bytes = std::min(Size, 64) * 2;
    const std::int32_t entry = (tile - task.offset) * rows + warp * 16;
    if (entry >= task.length) return;
    for (int i = 0; i < (Size + 63) / 64; ++i)
      tma_store(map_of(maps, task.base), corner({task.base, entry}, i),
                shared + at.gradients + from_byte + warp * 16 * Size * 2 + i * 16 * row_bytes);
  }
  // Waits until the room may be written again.
  __device__ void forget() const {
    if (lane == 0) store_wait<0>();
    __syncwarp();
  }

  // ---- The loop over key tiles ----

  __device__ void walk() {
    const BandShape& shape = problem.shape;
    const float rate = problem.scale * log2_e;
    const int partials = max(problem.reach - 1, 1);
    const std::int32_t first_key = shape.low(task.begin * rows) / rows;
    Loads next{task.base, task.begin, problem.chain > 1 ? task.end : shape.end_tile(task.end - 1, task.counted),
               first_key, task.end};
    if (loads) load_ahead(next, task.begin, first_key);

    int own_slot = 0, own_partial = 0;  // of the first query tile that sees this or a later key tile
    std::int32_t unseen = task.begin;   // the first query tile that has not been used yet
    int stage = 0, ds_stage = 0;
    std::uint32_t query_parity = 0, key_parity = 0;
    for (std::int32_t key = first_key; key < task.end; ++key) {
      const bool owned = key >= task.begin;
      const char* const keys = shared + at.keys + stage * tile_bytes;
      task.go_to(problem, key);
      const Seen seen = this->seen_of(key - task.offset);
      const std::int32_t seen_end = task.offset + shape.end_tile(key - task.offset, task.counted),
                         end = owned ? seen_end : min(seen_end, task.end);
      float dk[KeySize / 2] = {}, dv[ValueSize / 2] = {};
      barrier_wait(key_barrier(stage), key_parity);
      int slot = own_slot, part = own_partial;
      for (std::int32_t query = max(key, task.begin); query < end; ++query) {
        const bool fresh = query == unseen;
        const char* const queries = shared + slot * tile_bytes;
        const char* const dout = queries + key_bytes;
        Statistics& of = statistics(slot);
        float s[rows / 2], dp[rows / 2];
        OutputRow output;
        if (fresh) {
          output = this->read_output(task, (query - task.offset) * rows);
          barrier_wait(query_barrier(slot), query_parity);
        }
        wgmma_fence();
        multiply_tiles<T, KeySize>(s, keys, queries);
        multiply_tiles<T, ValueSize>(dp, keys + key_bytes, dout);
        if (fresh) {
          this->write_statistics(output, dout, of);
          __syncthreads();
          ++unseen;
          if (slot + 1 == problem.slots) query_parity ^= 1;
        }
        wgmma_wait<1>();
        wgmma_hold(s);
        const std::int32_t begin = (query - task.offset) * rows;
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
          this->template add_product<ValueSize>(dv, weights, dout);
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
        if (owned) this->template add_product<KeySize>(dk, ds_weights, queries);
        char* const ds = shared + at.ds + ds_stage * ds_bytes;
        const bool yields = query < task.end;
        if (yields) this->write_ds(ds, ds_weights);
        __syncthreads();
        const auto load_what_fits = [&] {
          if (loads) load_ahead(next, max(query > key ? key + 1 : key, task.begin), key);
        };
        if (yields) {
          float dq[KeySize / 2];
          if (!fresh) this->read_partial(dq, partial(part));
          this->add_query_gradient(dq, ds, keys, !fresh);
          load_what_fits();
          wgmma_wait<0>();
          wgmma_hold(dq);
          if (query == key) {
            forget();
            put<KeySize>(0, dq, problem.scale);
            proxy_fence();
            __syncwarp();
            if (lane == 0) {
              leave<KeySize>(problem.dq_maps, query, 0);
              store_commit();
            }
          } else {
            this->write_partial(partial(part), dq);
          }
          if (problem.ds_stages == 1)
            __syncthreads();
          else
            ds_stage ^= 1;
        } else {
          load_what_fits();
          wgmma_wait<0>();
        }
        wgmma_hold(dk);
        wgmma_hold(dv);
        slot = next_slot(slot, problem.slots);
        part = next_slot(part, partials);
      }
      if (owned) {
        forget();
        put<KeySize>(0, dk, problem.scale);
        put<ValueSize>(key_bytes, dv, 1.0f);
        proxy_fence();
        __syncwarp();
        if (lane == 0) {
          leave<KeySize>(problem.dk_maps, key, 0);
          leave<ValueSize>(problem.dv_maps, key, key_bytes);
          store_commit();
        }
        own_slot = next_slot(own_slot, problem.slots);
        own_partial = next_slot(own_partial, partials);
      }
      if (problem.key_stages == 1) {
        __syncthreads();
        if (loads) load_ahead(next, max(key + 1, task.begin), key + 1);
      }
      if (++stage == problem.key_stages) {
        stage = 0;
        key_parity ^= 1;
      }
    }
    forget();
  }
};

template <class T, int KeySize, int ValueSize, int Blocks>
__global__ void __launch_bounds__(128, Blocks)
    backward_band_small(const __grid_constant__ BandBackwardSmallProblem problem) {
  extern __shared__ char memory[];
  const BandBackwardSmallTask task(problem);
  if (task.begin >= task.end) return;
  char* const shared = memory + bytes_to_tile(memory);
  BandBackwardSmall<T, KeySize, ValueSize, Blocks> band(problem, task, shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < problem.slots + problem.key_stages; ++i) barrier_init(band.query_barrier(i), 1);
    barrier_init_fence();
  }
  __syncthreads();
  band.walk();
}

}  // namespace longstride::kernels::cuda::sm90
