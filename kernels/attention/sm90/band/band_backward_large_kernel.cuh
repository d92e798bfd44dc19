// Attention backward over a band, for heads larger than 32. Queries and keys are one row set, cut into tiles of 64
// rows. A block (one warpgroup) owns a run of tiles and visits its key tiles in order; each is multiplied with the
// query tiles that see it, beginning with its own:
//     S^T = K Q^T,  P^T = exp(scale S^T - lse),  dP^T = V dO^T,  dS^T = P^T (dP^T - delta)
//     dV += P^T dO,  dK += dS^T Q,  dQ += dS K
// dV and dK stay in registers during a key tile. The partial dQ of unfinished query tiles is in shared memory, each
// element accessed only by the thread that owns it; a query tile is finished after its own key tile, the last that it
// sees. So every operand is read about once and there are five products.
//
// A run begins with the keys before it that its queries see, for dQ only, and ends with the queries after it that see
// its keys, for dK and dV only: every row of a gradient is computed by one block, in an order that does not depend on
// where runs begin.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/attention/sm90/band/band_backward_large_math.cuh"

namespace longstride::kernels::cuda::sm90 {

template <class T, int KeySize, int ValueSize, int Blocks>
struct BandBackwardLarge : BandBackwardLargeMath<T, KeySize, ValueSize> {
  using Common = BandBackwardLargeMath<T, KeySize, ValueSize>;
  using Common::key_boxes, Common::value_boxes, Common::key_bytes, Common::tile_bytes, Common::ds_bytes,
      Common::dq_bytes;
  using Common::problem, Common::shared, Common::task, Common::thread, Common::loads;
  using Common::threads, Common::rows;
  using typename Common::OutputRow, typename Common::Seen, typename Common::Statistics;
  static constexpr int blocks = Blocks;  // per multiprocessor, limited by registers

  // Shared memory, from a multiple of 1024 bytes.
  struct SharedLayout {
    int keys = 0, ds = 0, dq = 0, statistics = 0, barriers = 0, end = 0;

    constexpr SharedLayout(int slots, int reach, int key_stages, int ds_stages) {
      keys = slots * tile_bytes;
      ds = keys + key_stages * tile_bytes;
      dq = ds + ds_stages * ds_bytes;
      statistics = dq + (reach - 1) * dq_bytes;
      barriers = statistics + slots * static_cast<int>(sizeof(Statistics));
      end = barriers + (slots + key_stages) * 8;
    }
  };
  static constexpr std::size_t shared_bytes(int slots, int reach, int key_stages, int ds_stages) {
    return static_cast<std::size_t>(SharedLayout(slots, reach, key_stages, ds_stages).end) + 1024;
  }

  const SharedLayout at;

  __device__ BandBackwardLarge(const BandBackwardProblem& p, const BandBackwardLargeTask& t, char* memory)
      : Common(p, t, memory), at(p.slots, p.reach, p.key_stages, p.ds_stages) {}

  __device__ std::uint64_t* query_barrier(int slot) const {
    return reinterpret_cast<std::uint64_t*>(shared + at.barriers) + slot;
  }
  __device__ std::uint64_t* key_barrier(int stage) const { return query_barrier(problem.slots + stage); }
  __device__ Statistics& statistics(int slot) const {
    return reinterpret_cast<Statistics*>(shared + at.statistics)[slot];
  }

  // ---- Loads, by one thread ----

  // The next tiles to load, and their destinations.
  struct Loads {
    std::int32_t query, query_end, key, key_end;
    int slot = 0, stage = 0;
  };
  // Loads every tile for which there is room: query tiles below `queries` and key tiles below `keys` are finished.
  __device__ void load_ahead(Loads& next, std::int32_t queries, std::int32_t keys) const {
    for (; next.key < next.key_end && next.key < keys + problem.key_stages; ++next.key) {
      this->load(shared + at.keys + next.stage * tile_bytes, problem.k, problem.v, next.key, key_barrier(next.stage));
      next.stage = next_slot(next.stage, problem.key_stages);
    }
    for (; next.query < next.query_end && next.query < queries + problem.slots; ++next.query) {
      this->load(shared + next.slot * tile_bytes, problem.q, problem.dout, next.query, query_barrier(next.slot));
      for (int i = 0; i < value_boxes; ++i) tma_prefetch(this->map_of(problem.o), this->corner(next.query, i));
      next.slot = next_slot(next.slot, problem.slots);
    }
  }

  // ---- Gradients ----

  // The partial dQ of a tile, four elements at a time so that a warp accesses 128 contiguous bytes.
  __device__ float4* partial(int slot) const {
    return reinterpret_cast<float4*>(shared + at.dq + slot * dq_bytes) + thread;
  }

  // ---- The loop over key tiles ----

  __device__ void walk() const {
    const BandShape& shape = problem.shape;
    const float rate = problem.scale * log2_e;
    const int partials = max(problem.reach - 1, 1);
    const std::int32_t first_key = shape.low(task.begin * rows) / rows;
    Loads next{task.begin, shape.end_tile(task.end - 1, task.length), first_key, task.end};
    if (loads) load_ahead(next, task.begin, first_key);

    int own_slot = 0, own_partial = 0;  // the first query tile that sees this or a later key tile
    std::int32_t unseen = task.begin;   // the first query tile that has not been used yet
    int stage = 0, ds_stage = 0;
    std::uint32_t query_parity = 0, key_parity = 0;
    for (std::int32_t key = first_key; key < task.end; ++key) {
      const bool owned = key >= task.begin;
      const char* const keys = shared + at.keys + stage * tile_bytes;
      const Seen seen = this->seen_of(key);
      const std::int32_t end =
          owned ? shape.end_tile(key, task.length) : min(shape.end_tile(key, task.length), task.end);
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
          output = this->read_output(task, query * rows);
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
        const std::int32_t begin = query * rows;
        std::uint32_t weights[4][4];
        if (seen.first + 15 <= begin && seen.first_end >= begin + rows)
          this->template weigh_and_pack<true>(s, weights, rate, of, seen, begin);
        else
          this->template weigh_and_pack<false>(s, weights, rate, of, seen, begin);
        if (owned) {
          this->template add_product<ValueSize>(dv, weights, dout);
          wgmma_wait<1>();
        } else {
          wgmma_wait<0>();
        }
        wgmma_hold(dp);
        this->differentiate(dp, s, of);
        std::uint32_t ds_weights[4][4];
        this->pack_weights(ds_weights, dp);
        if (owned) this->template add_product<KeySize>(dk, ds_weights, queries);
        char* const ds = shared + at.ds + ds_stage * ds_bytes;
        const bool yields = query < task.end;
        if (yields) this->write_ds(ds, ds_weights);
        __syncthreads();
        if (loads) load_ahead(next, max(query > key ? key + 1 : key, task.begin), key);
        if (yields) {
          float dq[KeySize / 2] = {};
          if (!fresh) this->read_partial(dq, partial(part));
          this->add_query_gradient(dq, ds, keys, true);
          wgmma_wait<0>();
          wgmma_hold(dq);
          if (query == key)
            this->template store<KeySize>(problem.dq, query, dq, problem.scale);
          else
            this->write_partial(partial(part), dq);
          if (problem.ds_stages == 1)
            __syncthreads();
          else
            ds_stage ^= 1;
        } else {
          wgmma_wait<0>();
        }
        wgmma_hold(dk);
        wgmma_hold(dv);
        slot = next_slot(slot, problem.slots);
        part = next_slot(part, partials);
      }
      if (owned) {
        this->template store<KeySize>(problem.dk, key, dk, problem.scale);
        this->template store<ValueSize>(problem.dv, key, dv, 1.0f);
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
  }
};

template <class T, int KeySize, int ValueSize, int Blocks>
__global__ void __launch_bounds__(128, Blocks)
    backward_band_large(const __grid_constant__ BandBackwardProblem problem) {
  extern __shared__ char memory[];
  BandBackwardLargeTask task;
  if (!task.find(problem)) return;
  char* const shared = memory + bytes_to_tile(memory);
  const BandBackwardLarge<T, KeySize, ValueSize, Blocks> band(problem, task, shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < problem.slots + problem.key_stages; ++i) barrier_init(band.query_barrier(i), 1);
    barrier_init_fence();
  }
  __syncthreads();
  band.walk();
}

}  // namespace longstride::kernels::cuda::sm90
