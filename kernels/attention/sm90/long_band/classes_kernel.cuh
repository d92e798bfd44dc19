// Attention backward over a long band of short classes (long_band_plan.h), for heads of up to 64: a block has a
// class. Per pair of 64 keys and 64 queries,
//     S^T = k q^T,  P = exp(scale S - lse),  dP^T = v dO^T,  dS = P (dP - delta),  dV += P dO,  dK += dS q,  dQ += dS k
// The only block of a multiprocessor has four warpgroups:
//   0 and 1  have 64 keys each of the key tile, and compute S to dK. They hand dS over in shared memory.
//   2        multiplies dS with the keys. The class's dQ is in shared memory, in f32; each element is read and
//            written by one thread alone.
//   3        has one warp, which loads by TMA, and whose lanes load lse and delta.
// Every sum has one order, dQ that of keys, dK and dV that of queries.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/attention/sm90/long_band/long_band_math.cuh"

namespace longstride::kernels::cuda::sm90 {

struct ResidueClassTask : BandBackwardLargeTask {
  // Consecutive tasks have neighbouring heads, then neighbouring classes, because their rows are neighbours in memory.
  __device__ void take(const LongBandProblem& problem, std::uint32_t index) {
    const auto heads = static_cast<std::uint32_t>(problem.heads), classes = static_cast<std::uint32_t>(problem.classes);
    head = static_cast<std::int32_t>(index % heads);
    index /= heads;
    residue = static_cast<std::int32_t>(index % classes);
    sequence = static_cast<std::int32_t>(index / classes);
    const bool natural = problem.set.run >= problem.set.period;
    base = problem.set.base + residue;
    step = natural ? 1 : problem.set.period;
    length = natural ? problem.set.length : (problem.n - base + step - 1) / step;
  }
};

template <class T>
struct BandBackwardClasses : LongBandMath<T> {
  using Common = LongBandMath<T>;
  using Common::key_bytes, Common::tile_bytes, Common::ds_bytes, Common::dq_bytes, Common::rows;
  using Common::shared, Common::thread, Common::lane, Common::warp;
  using Common::size, Common::own_keys, Common::arrive_for_warp;
  using typename Common::Seen, typename Common::Statistics, typename Common::Gradients, typename Common::Position;
  static constexpr int query_stages = 2, key_stages = 2;

  struct Control {
    Statistics statistics[query_stages];
    std::uint64_t query_full[query_stages], query_empty[query_stages];
    std::uint64_t key_full[key_stages], key_empty[key_stages];
    std::uint64_t value_full, value_empty, ds_full[2], ds_empty[2];
  };
  // Shared memory, from a multiple of 1024 bytes. Keys, values and dS are two tiles of 64 keys.
  static constexpr int keys_at = short_class_tiles * dq_bytes, values_at = keys_at + key_stages * 2 * key_bytes,
                       queries_at = values_at + 2 * key_bytes, ds_at = queries_at + query_stages * tile_bytes,
                       control_at = ds_at + 2 * ds_bytes;
  static constexpr std::size_t shared_bytes = control_at + sizeof(Control) + tile_alignment;
  static_assert(shared_bytes <= shared_of_block);

  const LongBandProblem& problem;
  ResidueClassTask& task;
  Control& control;

  __device__ BandBackwardClasses(const LongBandProblem& p, ResidueClassTask& t, char* memory)
      : Common(p, t, memory, this_thread() % warpgroup_threads),
        problem(p),
        task(t),
        control(*reinterpret_cast<Control*>(memory + control_at)) {}

  // Every thread arrives itself for memory of ordinary loads and stores, because racecheck does not accept an arrival
  // on behalf of another thread (general/backward_kernel.cuh). Memory that matrix products alone read has one arrival
  // per warp.
  __device__ void init_barriers() const {
    for (int i = 0; i < query_stages; ++i) {
      barrier_init(&control.query_full[i], 1 + warp_threads);
      barrier_init(&control.query_empty[i], own_keys);
    }
    for (int i = 0; i < key_stages; ++i) {
      barrier_init(&control.key_full[i], 1);
      barrier_init(&control.key_empty[i], 3 * warpgroup_warps);
    }
    barrier_init(&control.value_full, 1);
    barrier_init(&control.value_empty, own_keys);
    for (int half = 0; half < 2; ++half) {
      barrier_init(&control.ds_full[half], warpgroup_threads);
      barrier_init(&control.ds_empty[half], warpgroup_warps);
    }
    barrier_init_fence();
    proxy_fence();
  }

  // Calls f for every key tile of the block's tasks.
  template <class F>
  __device__ void each_key_tile(F&& f) const {
    for (std::uint32_t index = blockIdx.x; index < problem.tasks; index += gridDim.x) {
      task.take(problem, index);
      const LongBandOrder order = {problem.shape, task.length};
      for (std::int32_t key = 0; key < order.key_tiles(); ++key) f(order, key);
    }
  }
  __device__ char* keys(int stage) const { return shared + keys_at + stage * 2 * key_bytes; }
  __device__ char* queries(int stage) const { return shared + queries_at + stage * tile_bytes; }

  // ---- The warp that loads ----

  __device__ void load_all() const {
    RingSlot key, query, value;
    each_key_tile([&](const LongBandOrder& order, std::int32_t k) {
      barrier_wait(&control.key_empty[key.index], key.parity ^ 1);
      const auto corner = [&](int half) { return this->corner(2 * k + half, 0); };
      this->load_rows(keys(key.index), problem.k, corner, &control.key_full[key.index]);
      key.advance(key_stages);
      barrier_wait(&control.value_empty, value.parity ^ 1);
      this->load_rows(shared + values_at, problem.v, corner, &control.value_full);
      value.advance(1);
      const std::int64_t row = this->first_row();
      for (std::int32_t tile = 2 * k; tile < order.end_of(k); ++tile) {
        const int i = query.index;
        this->load_queries(problem, row, tile, queries(i), control.statistics[i], &control.query_empty[i],
                           query.parity ^ 1, &control.query_full[i]);
        query.advance(query_stages);
      }
    });
  }

  // The fourth warpgroup.
  __device__ void serve() const {
    if (warp == 0) load_all();
  }

  // ---- The warpgroup that sums dQ ----

  __device__ void sum_queries() const {
    RingSlot key, ds;
    each_key_tile([&](const LongBandOrder& order, std::int32_t k) {
      barrier_wait(&control.key_full[key.index], key.parity);
      for (std::int32_t tile = 2 * k; tile < order.end_of(k); ++tile) {
        auto* const partial = reinterpret_cast<float4*>(shared + tile * dq_bytes) + thread;
        float dq[size / 2] = {};
        if (order.first_key(tile) < k) this->read_partial(dq, partial);
        for (int half = 0; half < 2; ++half) {
          barrier_wait(&control.ds_full[half], ds.parity);
          this->add_query_gradient(dq, shared + ds_at + half * ds_bytes, keys(key.index) + half * key_bytes, true);
        }
        wgmma_wait<1>();
        arrive_for_warp(&control.ds_empty[0]);
        wgmma_wait<0>();
        wgmma_hold(dq);
        arrive_for_warp(&control.ds_empty[1]);
        ds.advance(1);
        if (order.last_key(tile) == k)
          this->template store<size>(problem.dq, tile, dq, problem.scale);
        else
          this->write_partial(partial, dq);
      }
      arrive_for_warp(&control.key_empty[key.index]);
      key.advance(key_stages);
    });
  }

  // ---- A warpgroup with half of the visited keys ----

  // A key tile of one of the two warpgroups.
  struct Visit {
    Position& at;
    const OwnRows<T, rows, size, true>& values;
    Gradients& gradients;
    const Seen seen;
    const int half;
    const char* const own_keys;
    char* const own_ds;
  };

  __device__ void hand_over(Visit& visit, const std::uint32_t (&ds)[4][4]) const {
    barrier_wait(&control.ds_empty[visit.half], visit.at.ds.parity ^ 1);
    this->write_ds(visit.own_ds, ds);
    barrier_arrive(&control.ds_full[visit.half]);
    visit.at.ds.advance(1);
  }
  // Query tiles that do not see the warpgroup's keys.
  __device__ void skip(Visit& visit, std::int32_t tiles) const {
#pragma unroll 1
    for (; tiles > 0; --tiles) {
      barrier_wait(&control.query_full[visit.at.query.index], visit.at.query.parity);
      hand_over(visit, {});
      barrier_arrive(&control.query_empty[visit.at.query.index]);
      visit.at.query.advance(query_stages);
    }
  }
  __device__ void pass_tile(Visit& visit, std::int32_t tile) const {
    const int stage = visit.at.query.index;
    const char* const q = queries(stage);
    const Statistics& of = control.statistics[stage];
    barrier_wait(&control.query_full[stage], visit.at.query.parity);
    visit.at.query.advance(query_stages);
    float s[rows / 2], dp[rows / 2];
    wgmma_fence();
    multiply_tiles<T, size>(s, visit.own_keys, q);
    visit.values.multiply(dp, descriptor<2 * size>(q + key_bytes));
    wgmma_wait<1>();
    wgmma_hold(s);
    std::uint32_t weights[4][4], ds[4][4];
    this->weigh_tile(s, weights, visit.seen, tile * rows, of);
    this->template add_product<size>(visit.gradients.v, weights, q + key_bytes);
    wgmma_wait<1>();
    wgmma_hold(dp);
    this->differentiate(dp, s, of);
    this->pack_weights(ds, dp);
    this->template add_product<size>(visit.gradients.k, ds, q);
    hand_over(visit, ds);
    wgmma_wait<0>();
    wgmma_hold(visit.gradients.k);
    wgmma_hold(visit.gradients.v);
    barrier_arrive(&control.query_empty[stage]);
  }
  __device__ void pass_queries(const LongBandOrder& order, std::int32_t key, Visit& visit) const {
    const std::int32_t begin = order.begin_of(key, visit.half), end = order.end_of(key, visit.half);
    skip(visit, begin - 2 * key);
    for (std::int32_t tile = begin; tile < end; ++tile) pass_tile(visit, tile);
    skip(visit, order.end_of(key) - max(begin, end));
  }

  __device__ void sum_keys(int half) const {
    Position at;
    OwnRows<T, rows, size, true> values;
    each_key_tile([&](const LongBandOrder& order, std::int32_t key) {
      this->take_values(values, shared + values_at + half * key_bytes, &control.value_full, &control.value_empty,
                        at.value);
      Gradients gradients = {};
      barrier_wait(&control.key_full[at.key.index], at.key.parity);
      const std::int32_t tile = 2 * key + half;
      Visit visit = {at,
                     values,
                     gradients,
                     this->seen_of(tile),
                     half,
                     keys(at.key.index) + half * key_bytes,
                     shared + ds_at + half * ds_bytes};
      pass_queries(order, key, visit);
      arrive_for_warp(&control.key_empty[at.key.index]);
      at.key.advance(key_stages);
      this->store_gradients(tile, gradients);
    });
  }
};

template <class T>
__global__ void __launch_bounds__(BandBackwardClasses<T>::block_threads, 1)
    backward_classes(const __grid_constant__ LongBandProblem problem) {
  extern __shared__ char memory[];
  ResidueClassTask task;
  const BandBackwardClasses<T> band(problem, task, memory + bytes_to_tile(memory));
  run_warpgroups(band);
}

}  // namespace longstride::kernels::cuda::sm90
