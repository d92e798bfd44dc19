// The band kernel of fewer instructions: sixteen queries that see none of a warp's keys are passed over in every step,
// and gradients leave through shared memory and TMA. Queries and keys are one stream, cut into tiles of 64 rows. A
// block (one warpgroup) owns a run of tiles and walks the keys; each key tile meets the query tiles from its own on
// that see it:
//     S^T = K Q^T,  P^T = exp(scale S^T - lse),  dP^T = V dO^T,  dS^T = P^T (dP^T - delta)
//     dV += P^T dO,  dK += dS^T Q,  dQ += dS K
// dV and dK stay in registers over a key tile. The partial dQ of the query tiles under way lie in shared memory, each
// element with the thread that owns it; a query tile is done after its own key tile, the last that it sees. So every
// operand is read about once and there are five products.
//
// A run begins with the keys before it that its queries see, for dQ alone, and ends with the queries after it that see
// its keys, for dK and dV alone: every row of a gradient is computed by one block, in an order that does not depend on
// where runs begin.
#pragma once
#include <algorithm>

#include "kernels/attention/sm90/backward_store.cuh"
#include "kernels/attention/sm90/band_kernel.cuh"
#include "kernels/attention/sm90/band_problem.h"
#include "kernels/attention/sm90/pass_shape.h"
#include "kernels/attention/sm90/ptx.cuh"
#include "kernels/attention/sm90/wgmma.cuh"
#include "kernels/base/cuda_types.cuh"

namespace longstride::kernels::cuda::sm90 {

struct LeanBandProblem : BandProblem {
  StreamMaps dq_maps, dk_maps, dv_maps;  // boxes of a warp's sixteen rows
  // A block owns `run` tiles of a segment, or all tiles of `chain` segments one after the other, numbered through; then
  // every segment counts as many as the longest.
  std::int32_t chain;
  Divisor by_heads, by_chains, by_period;
  Divisor by_tiles;  // of a segment in a chain; else more than there are
};

struct LeanBandTask : BandTask {
  std::int32_t offset;   // the number of this segment's first tile
  std::int32_t counted;  // entries that make its tiles

  __device__ explicit LeanBandTask(const LeanBandProblem& problem) {
    const auto block = static_cast<std::int32_t>(blockIdx.x), heads = static_cast<std::int32_t>(problem.by_heads.value),
               chains = static_cast<std::int32_t>(problem.by_chains.value);
    const std::int32_t rest = problem.by_heads.quotient(block);
    head = block - rest * heads;
    const std::int32_t run = problem.by_chains.quotient(rest);
    segment = (rest - run * chains) * problem.chain;
    sequence = static_cast<std::int32_t>(blockIdx.y);
    step = problem.stream.run >= problem.stream.period ? 1 : problem.stream.period;
    offset = 0;
    enter(problem);
    counted = problem.chain > 1 ? problem.stream.length : length;
    const std::int32_t tiles = (counted + band_rows - 1) / band_rows;
    begin = run * problem.run;
    end = problem.chain > 1 ? min(problem.chain, problem.segments - segment) * tiles : min(begin + problem.run, tiles);
  }
  __device__ void enter(const LeanBandProblem& problem) {
    base = problem.stream.base + segment;
    length = step == 1 ? problem.stream.length : problem.by_period.quotient(problem.n - base + step - 1);
  }
  // Into the segment of this tile.
  __device__ void go_to(const LeanBandProblem& problem, std::int32_t tile) {
    const auto tiles = static_cast<std::int32_t>(problem.by_tiles.value);
    if (tile - offset < tiles) return;
    offset += tiles;
    ++segment;
    enter(problem);
  }
};

template <class T, int KeySize, int ValueSize, int Blocks>
struct LeanBand {
  static constexpr int threads = 128, rows = band_rows;
  static constexpr int blocks = Blocks;  // on a multiprocessor, by registers
  static constexpr int key_row = std::min(KeySize, 64) * 2, value_row = std::min(ValueSize, 64) * 2;
  static constexpr int key_boxes = (KeySize + 63) / 64, value_boxes = (ValueSize + 63) / 64;
  static constexpr int key_bytes = rows * KeySize * 2, value_bytes = rows * ValueSize * 2;
  static constexpr int tile_bytes = key_bytes + value_bytes, ds_bytes = rows * rows * 2, dq_bytes = rows * KeySize * 4;
  static constexpr float log2_e = 1.4426950408889634f;

  // Of a query tile: -log2(e) lse, or -infinity beyond the stream, and delta.
  struct Statistics {
    float shift[rows], delta[rows];
  };

  // Shared memory, from a multiple of 1024 bytes.
  struct Layout {
    int keys, ds, dq, gradients, statistics, barriers, end;

    __host__ __device__ Layout(int slots, int reach, int key_stages, int ds_stages) {
      keys = slots * tile_bytes;
      ds = keys + key_stages * tile_bytes;
      dq = ds + ds_stages * ds_bytes;
      gradients = dq + (reach - 1) * dq_bytes;
      statistics = gradients + tile_bytes;
      barriers = statistics + slots * static_cast<int>(sizeof(Statistics));
      end = barriers + (slots + key_stages) * 8;
    }
  };
  static std::size_t shared_bytes(const BandProblem& p) {
    return static_cast<std::size_t>(Layout(p.slots, p.reach, p.key_stages, p.ds_stages).end) + 1024;
  }

  const LeanBandProblem& problem;
  LeanBandTask task;
  char* const shared;
  const Layout at;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int warp = __shfl_sync(~0u, thread / 32, 0);  // known to be one for all lanes
  // The warp that loads is another in the blocks that share a multiprocessor, for it has more to do.
  const bool loads = thread == static_cast<int>(blockIdx.x / 128 % 4 * 32);

  __device__ LeanBand(const LeanBandProblem& p, const LeanBandTask& t, char* memory)
      : problem(p), task(t), shared(memory), at(p.slots, p.reach, p.key_stages, p.ds_stages) {}

  __device__ std::uint64_t* query_barrier(int slot) const {
    return reinterpret_cast<std::uint64_t*>(shared + at.barriers) + slot;
  }
  __device__ std::uint64_t* key_barrier(int stage) const { return query_barrier(problem.slots + stage); }
  __device__ Statistics& statistics(int slot) const {
    return reinterpret_cast<Statistics*>(shared + at.statistics)[slot];
  }

  // ---- Loads, by one thread ----

  // Where a tile is, of this segment or a later one.
  struct Place {
    std::int32_t base, entry;
  };
  __device__ Place place_of(std::int32_t tile, std::int32_t first_base) const {
    const std::int32_t segment = problem.by_tiles.quotient(tile);
    return {first_base + segment, (tile - segment * static_cast<std::int32_t>(problem.by_tiles.value)) * rows};
  }
  __device__ Coordinates corner(const Place& place, int box) const {
    const bool natural = task.step == 1;
    return {{box * 64, task.head, natural ? place.base + place.entry : place.base, natural ? 0 : place.entry,
             task.sequence}};
  }
  __device__ static const CUtensorMap* map_of(const StreamMaps& maps, std::int32_t base) {
    return base < maps.rest ? &maps.longer : &maps.complete;
  }
  __device__ void load(char* to, const StreamMaps& key_sized, const StreamMaps& value_sized, const Place& place,
                       std::uint64_t* barrier) const {
    barrier_arrive_expect(barrier, tile_bytes);
    for (int i = 0; i < key_boxes; ++i)
      tma_load(to + i * rows * key_row, map_of(key_sized, place.base), corner(place, i), barrier);
    for (int i = 0; i < value_boxes; ++i)
      tma_load(to + key_bytes + i * rows * value_row, map_of(value_sized, place.base), corner(place, i), barrier);
  }

  // What is to be loaded next, and where to.
  struct Loads {
    std::int32_t base, query, query_end, key, key_end;  // base of the block's first segment
    int slot = 0, stage = 0;
  };
  // All that has room: query tiles below `queries` and key tiles below `keys` are done with.
  __device__ void load_ahead(Loads& next, std::int32_t queries, std::int32_t keys) const {
    for (; next.key < next.key_end && next.key < keys + problem.key_stages; ++next.key) {
      load(shared + at.keys + next.stage * tile_bytes, problem.k, problem.v, place_of(next.key, next.base),
           key_barrier(next.stage));
      next.stage = next.stage + 1 == problem.key_stages ? 0 : next.stage + 1;
    }
    for (; next.query < next.query_end && next.query < queries + problem.slots; ++next.query) {
      const Place place = place_of(next.query, next.base);
      load(shared + next.slot * tile_bytes, problem.q, problem.dout, place, query_barrier(next.slot));
      for (int i = 0; i < value_boxes; ++i) tma_prefetch(map_of(problem.o, place.base), corner(place, i));
      next.slot = next.slot + 1 == problem.slots ? 0 : next.slot + 1;
    }
  }

  // ---- Statistics of a query tile: two threads a row ----

  struct OutputRow {
    static constexpr int count = ValueSize / 16;
    uint4 o[count];
    float lse;
  };
  __device__ OutputRow read_output(std::int32_t tile) const {
    OutputRow row;
    const std::int32_t entry = (tile - task.offset) * rows + thread / 2;
    const bool there = entry < task.length;
    const std::int64_t position = there ? task.position(entry) : 0;
    const Gradient& output = problem.output;
    const T* const from = static_cast<const T*>(output.data) + task.sequence * output.stride[0] +
                          position * output.stride[1] + task.head * output.stride[2];
#pragma unroll
    for (int i = 0; i < OutputRow::count; ++i) {
      const int column = (thread % 2 * OutputRow::count + i) * 8;
      row.o[i] = there && column < output.size ? __ldg(reinterpret_cast<const uint4*>(from + column)) : uint4{};
    }
    const std::int64_t first = (static_cast<std::int64_t>(task.sequence) * problem.heads + task.head) * problem.n;
    row.lse = there ? __ldg(problem.lse + first + position) : __builtin_huge_valf();
    return row;
  }
  __device__ void write_statistics(const OutputRow& row, const char* dout, Statistics& to) const {
    const int r = thread / 2;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < OutputRow::count; ++i) {
      const int chunk = thread % 2 * OutputRow::count + i, box = chunk / 8;
      const int within = r * value_row + chunk % 8 * 16;
      const uint4 y = *reinterpret_cast<const uint4*>(dout + box * rows * value_row +
                                                      (within ^ (within >> 7) % (value_row / 16) * 16));
      const std::uint32_t a[4] = {row.o[i].x, row.o[i].y, row.o[i].z, row.o[i].w}, b[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float2 left = unpack<T>(a[e]), right = unpack<T>(b[e]);
        sum = fmaf(left.x, right.x, fmaf(left.y, right.y, sum));
      }
    }
    sum += __shfl_xor_sync(~0u, sum, 1);
    if (thread % 2 == 0)
      to.shift[r] = row.lse * -log2_e;
    else
      to.delta[r] = sum;
  }

  // ---- Products ----

  // s = a b^T, both tiles of 64 rows.
  template <int Size>
  __device__ static void multiply(float (&s)[rows / 2], const char* a, const char* b) {
    constexpr int row_bytes = std::min(Size, 64) * 2;
    const std::uint64_t left = descriptor<row_bytes>(a), right = descriptor<row_bytes>(b);
#pragma unroll
    for (int i = 0; i < Size / 16; ++i) {
      const int within = i / 4 * rows * row_bytes + i % 4 * 32;
      wgmma<T, rows, false>(s, advanced(left, within), advanced(right, within), i > 0);
    }
    wgmma_commit();
  }
  // gradient += weights tile, the weights in registers.
  template <int Size>
  __device__ static void add_product(float (&gradient)[Size / 2], const std::uint32_t (&weights)[4][4],
                                     const char* tile) {
    constexpr int row_bytes = std::min(Size, 64) * 2;
    const std::uint64_t b = descriptor<row_bytes>(tile, rows * row_bytes);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) wgmma<T, Size, true>(gradient, weights[i], advanced(b, i * 16 * row_bytes), true);
    wgmma_commit();
  }
  // dq = dS k, or +=; dS (queries, keys) from shared memory.
  __device__ static void add_query_gradient(float (&dq)[KeySize / 2], const char* ds, const char* keys, bool adds) {
    const std::uint64_t a = descriptor<128>(ds), b = descriptor<key_row>(keys, rows * key_row);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      wgmma<T, KeySize, true>(dq, advanced(a, i * 32), advanced(b, i * 16 * key_row), adds || i > 0);
    wgmma_commit();
  }

  // ---- Weights ----

  // Queries that see the thread's two keys, and those that see the warp's first and last, in entries.
  struct Seen {
    std::int32_t end[2], first, first_end, last_end;
  };
  __device__ Seen seen_of(std::int32_t tile) const {
    const std::int32_t first = tile * rows + warp * 16, own = first + lane / 4;
    const BandShape& shape = problem.shape;
    return {{shape.beyond(own), shape.beyond(own + 8)}, first, shape.beyond(first), shape.beyond(first + 15)};
  }
  // Groups of sixteen queries of a tile, a bit each: those that see some of the warp's keys, those that come before one
  // of them, and those that come after one has left their sight.
  struct Groups {
    std::uint32_t visible, early, late;
  };
  __device__ static Groups groups_of(const Seen& seen, std::int32_t begin) {
    const auto below = [](std::int32_t x) { return (1u << min(max(x, 0), 4)) - 1; };  // groups below the x-th
    const std::int32_t own = (seen.first - begin) >> 4;
    return {below((seen.last_end - begin + 15) >> 4) & ~below(own), below(own + 1),
            ~below((seen.first_end - begin) >> 4)};
  }

  // S becomes P, and P the product's operand. Full: every key is seen by every query.
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
  // dP becomes dS, and dS the product's operand.
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
  // dS^T from registers to (queries, keys) in shared memory.
  __device__ void write_ds(char* ds, const std::uint32_t (&a)[4][4]) const {
    const int matrix = lane / 8, row = matrix / 2 * 8 + lane % 8, chunk = (2 * warp + matrix % 2) ^ lane % 8;
#pragma unroll
    for (int i = 0; i < 4; ++i) matrix_store_4_transposed(ds + (16 * i + row) * 128 + chunk * 16, a[i]);
    proxy_fence();
  }

  // ---- Gradients ----

  // The partial dQ of a tile, four elements at a time so that a warp's 128 bytes lie side by side.
  __device__ float4* partial(int slot) const {
    return reinterpret_cast<float4*>(shared + at.dq + slot * dq_bytes) + thread;
  }
  __device__ static void read_partial(float (&dq)[KeySize / 2], const float4* from) {
#pragma unroll
    for (int i = 0; i < KeySize / 8; ++i) {
      const float4 x = from[i * threads];
      dq[4 * i] = x.x;
      dq[4 * i + 1] = x.y;
      dq[4 * i + 2] = x.z;
      dq[4 * i + 3] = x.w;
    }
  }
  __device__ static void write_partial(float4* to, const float (&dq)[KeySize / 2]) {
#pragma unroll
    for (int i = 0; i < KeySize / 8; ++i) to[i * threads] = {dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]};
  }

  // A warp's rows of a gradient to shared memory, in the order that TMA takes, `to_byte` into the room for gradients.
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
      matrix_store_4(to + box * 16 * row_bytes + swizzled, pack<T>(d[0] * factor, d[1] * factor),
                     pack<T>(d[2] * factor, d[3] * factor), pack<T>(d[4] * factor, d[5] * factor),
                     pack<T>(d[6] * factor, d[7] * factor));
    }
  }
  // From there to the gradient: one lane, after proxy_fence and __syncwarp.
  template <int Size>
  __device__ void leave(const StreamMaps& maps, std::int32_t tile, int from_byte) const {
    constexpr int row_bytes = std::min(Size, 64) * 2;
    const std::int32_t entry = (tile - task.offset) * rows + warp * 16;
    if (entry >= task.length) return;
    for (int i = 0; i < (Size + 63) / 64; ++i)
      tma_store(map_of(maps, task.base), corner({task.base, entry}, i),
                shared + at.gradients + from_byte + warp * 16 * Size * 2 + i * 16 * row_bytes);
  }
  // The room may be written again.
  __device__ void forget() const {
    if (lane == 0) store_wait<0>();
    __syncwarp();
  }

  // ---- The walk ----

  __device__ void walk() {
    const BandShape& shape = problem.shape;
    const float rate = problem.scale * log2_e;
    const int partials = max(problem.reach - 1, 1);
    const std::int32_t first_key = shape.low(task.begin * rows) / rows;
    Loads next{task.base, task.begin, problem.chain > 1 ? task.end : shape.end_tile(task.end - 1, task.counted),
               first_key, task.end};
    if (loads) load_ahead(next, task.begin, first_key);

    int own_slot = 0, own_partial = 0;  // of the first query tile that key tiles from here on meet
    std::int32_t unseen = task.begin;   // the next query tile to be met for the first time
    int stage = 0, ds_stage = 0;
    std::uint32_t query_parity = 0, key_parity = 0;
    for (std::int32_t key = first_key; key < task.end; ++key) {
      const bool owned = key >= task.begin;
      const char* const keys = shared + at.keys + stage * tile_bytes;
      task.go_to(problem, key);
      const Seen seen = seen_of(key - task.offset);
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
          output = read_output(query);
          barrier_wait(query_barrier(slot), query_parity);
        }
        wgmma_fence();
        multiply<KeySize>(s, keys, queries);
        multiply<ValueSize>(dp, keys + key_bytes, dout);
        if (fresh) {
          write_statistics(output, dout, of);
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
          add_product<ValueSize>(dv, weights, dout);
          wgmma_wait<1>();
        } else {
          wgmma_wait<0>();
        }
        wgmma_hold(dp);
        std::uint32_t visible = groups.visible, ds_weights[4][4];
        asm volatile("" : "+r"(visible));  // tested again; kept as predicates it costs more
        if (full)
          differentiate<true>(dp, ds_weights, s, of, visible);
        else
          differentiate<false>(dp, ds_weights, s, of, visible);
        if (owned) add_product<KeySize>(dk, ds_weights, queries);
        char* const ds = shared + at.ds + ds_stage * ds_bytes;
        const bool yields = query < task.end;
        if (yields) write_ds(ds, ds_weights);
        __syncthreads();
        const auto load_what_fits = [&] {
          if (loads) load_ahead(next, max(query > key ? key + 1 : key, task.begin), key);
        };
        if (yields) {
          float dq[KeySize / 2];
          if (!fresh) read_partial(dq, partial(part));
          add_query_gradient(dq, ds, keys, !fresh);
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
            write_partial(partial(part), dq);
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
        slot = slot + 1 == problem.slots ? 0 : slot + 1;
        part = part + 1 == partials ? 0 : part + 1;
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
        own_slot = own_slot + 1 == problem.slots ? 0 : own_slot + 1;
        own_partial = own_partial + 1 == partials ? 0 : own_partial + 1;
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
__global__ void __launch_bounds__(128, Blocks) backward_band_lean(const __grid_constant__ LeanBandProblem problem) {
  extern __shared__ char memory[];
  const LeanBandTask task(problem);
  if (task.begin >= task.end) return;
  char* const shared = memory + (1024 - shared_address(memory) % 1024) % 1024;
  LeanBand<T, KeySize, ValueSize, Blocks> band(problem, task, shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < problem.slots + problem.key_stages; ++i) barrier_init(band.query_barrier(i), 1);
    barrier_init_fence();
  }
  __syncthreads();
  band.walk();
}

}  // namespace longstride::kernels::cuda::sm90
