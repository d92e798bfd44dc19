// The outputs of runs (walk/outputs.cuh) for wide heads. While the state is written as an operand, two warpgroups
// compute scores, of 32 keys each; then the third multiplies the queries with the state, the last with z.
#include "kernels/base/cuda_launch.cuh"
#include "kernels/scan/sm90/wide.cuh"

namespace longstride::kernels::cuda::scanning {
namespace wide {
namespace {

constexpr int score_groups = 2, output_group = 2;

struct Room {
  static constexpr std::size_t q = 0, k = keys_bytes, v = 2 * keys_bytes, next = v + tile_bytes, moved = 2 * next,
                               scores = moved + tile_bytes, state = scores + tile_bytes, z = state + keys_bytes,
                               column = z + keys * Column::row_bytes, near = column + chunk * Column::row_bytes,
                               full = near + sizeof(Near), products = full + 16,
                               below = products + 2 * sizeof(Products),
                               bytes = below + sizeof(float) * (score_groups + 1) * chunk;
  static_assert(bytes + tile_alignment <= 227 * 1024);
};

struct Outputs : BlockRun<Room> {
  using Memory = Room;
  const int own = warpgroup();
  const Tile moved = tile_at(shared + Memory::moved), scores = tile_at(shared + Memory::scores);
  const Column z{shared + Memory::z}, column{shared + Memory::column};
  Near& near = *reinterpret_cast<Near*>(shared + Memory::near);
  float* const below = reinterpret_cast<float*>(shared + Memory::below);  // parts of denominators: chunk each

  __device__ Place place(int step) const { return {call, unit, first + step}; }
  __device__ char* stage(int step) const { return shared + step % 2 * Memory::next; }
  __device__ char* q(int step) const { return stage(step) + Memory::q; }
  __device__ char* k(int step) const { return stage(step) + Memory::k; }
  __device__ Tile v(int step) const { return tile_at(stage(step) + Memory::v); }
  __device__ void start(int step) const {
    if (thread_now() != 0) return;
    const Place at = place(step);
    std::uint64_t* const full = &places.full[step % 2];
    barrier_arrive_expect(full, Memory::next);
    load_keys(q(step), maps.q, at, full);
    load_keys(k(step), maps.k, at, full);
    load_values(v(step), maps.v, at, full);
  }
  // A part of the denominators of the warp's rows, from every fourth lane.
  __device__ void put_below(int number, float of_low, float of_high) const {
    if (lane_now() % 4 != 0) return;
    below[number * chunk + low_row()] = of_low;
    below[number * chunk + low_row() + 8] = of_high;
  }
  __device__ float factor(int step, int at) const { return call.scaled ? products(step).from_start(at) : 1.0f; }

  // Scores of 32 keys.
  __device__ void start_scores(Strip<2>& sum, int step) const {
    wgmma_fence();
#pragma unroll
    for (int t = 0; t < warpgroups; ++t) {
      const std::uint64_t a = operand(part_of(q(step), t)), b = operand(part_of(k(step), t), own * 32);
#pragma unroll
      for (int i = 0; i < steps; ++i) wgmma<T, 32, false>(accumulators(sum), along(a, i), along(b, i), t + i > 0);
    }
    wgmma_commit();
  }
  __device__ void put_scores(Strip<2>& sum, int step) const {
    float sums[2] = {};
    put_visible(scores, sum, own * 2, call, products(step), near, [&](int, int r, float x, float y) {
      const float2 summed = unpack<T>(pack<T>(x, y));  // as denominators sum them
      sums[r] += summed.x + summed.y;
    });
    if (!call.normalised) return;
#pragma unroll
    for (float& x : sums)
      for (int other = 1; other < 4; other *= 2) x += __shfl_xor_sync(~0u, x, other);
    put_below(own, sums[0], sums[1]);
  }
  // Queries times the state.
  __device__ void start_outputs(Strip<4>& o, int step) const {
    wgmma_fence();
#pragma unroll
    for (int t = 0; t < warpgroups; ++t) {
      const std::uint64_t a = operand(part_of(q(step), t)), b = operand(part_of(shared + Memory::state, t));
#pragma unroll
      for (int i = 0; i < steps; ++i) wgmma<T, 64, true>(accumulators(o), along(a, i), down(b, i), t + i > 0);
    }
    wgmma_commit();
  }
  // Queries times z.
  __device__ void put_sums(int step) const {
    float sum[16];
    wgmma_fence();
#pragma unroll
    for (int t = 0; t < warpgroups; ++t) {
      const std::uint64_t a = operand(part_of(q(step), t)), b = z.operand(t * chunk);
#pragma unroll
      for (int i = 0; i < steps; ++i) wgmma<T, 32, true>(sum, along(a, i), Column::down(b, i), t + i > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(sum);
    put_below(score_groups, low_of(sum) * factor(step, low_row()), high_of(sum) * factor(step, low_row() + 8));
  }
  __device__ void write(Strip<4>& o, int step) const {
    const Place at = place(step);
    if (call.normalised) {
      float sums[2] = {};
#pragma unroll
      for (int i = 0; i <= score_groups; ++i) {
        sums[0] += below[i * chunk + low_row()];
        sums[1] += below[i * chunk + low_row() + 8];
      }
      scale_rows(o, sums[0] != 0 ? 1 / sums[0] : 0.0f, sums[1] != 0 ? 1 / sums[1] : 0.0f);
      if (lane_now() % 4 == 0) {
        if (low_row() < at.count) call.denominator[at.of_unit(call, low_row())] = sums[0];
        if (low_row() + 8 < at.count) call.denominator[at.of_unit(call, low_row() + 8)] = sums[1];
      }
    }
    store_rows<T>(o, call.o, at, strip_row(), 0, call.value_size, true);
  }
  // The state and the chunk's values as operands. Followed by a barrier.
  __device__ void set_operands(BlockState& state, int step) const {
    put_state(shared + Memory::state, state, own);
    if (call.normalised && lane_now() % 4 == 0) {
      z.set(BlockState::row() + lane_now() / 4, state.z[0]);
      z.set(BlockState::row() + lane_now() / 4 + 8, state.z[2]);
    }
    const Products& now = products(step);
    const auto to_end = [&](int r) { return call.scaled ? now.to_end(r) : 1.0f; };
    scale_tile(moved, v(step), to_end);
    if (call.normalised && thread_now() < chunk) column.set(thread_now(), to_end(thread_now()));
    proxy_fence();
  }
  // The state behind the chunk.
  __device__ void advance(BlockState& state, int step) const {
    if (call.scaled) {
      const float over = products(step).whole();
      state.scale(over, over);
    }
    Addition addition;
    addition.start(state, part_of(k(step), own), moved, column, call.normalised);
    wgmma_wait<0>();
    addition.end(state, call.normalised);
  }
  __device__ void begin(BlockState& state) const {
    start(0);
    const std::int64_t size = static_cast<std::int64_t>(call.key_size) * call.columns;
    state.load(call, call.states.before + (static_cast<std::int64_t>(unit) * call.chunks + run) * size);
    column.clear(chunk);
    z.clear(keys);
    if (call.scaled) set_products(products(0), &near, read_decay(call, place(0)), place(0));
  }
  __device__ void walk() {
    BlockState state;
    begin(state);
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      __syncthreads();
      const bool more = step + 1 < count;
      ReadDecay decay;
      if (more) {
        start(step + 1);
        if (call.scaled) decay = read_decay(call, place(step + 1));
      }
      places.wait(step % 2);
      if (own < score_groups) {
        Strip<2> sum;
        start_scores(sum, step);
        set_operands(state, step);
        __syncthreads();
        wgmma_wait<0>();
        wgmma_hold(accumulators(sum));
        put_scores(sum, step);
        proxy_fence();
        __syncthreads();
      } else if (own == output_group) {
        Strip<4> o;
        set_operands(state, step);
        __syncthreads();
        start_outputs(o, step);
        wgmma_wait<0>();
        wgmma_hold(accumulators(o));
        if (call.scaled) scale_rows(o, factor(step, low_row()), factor(step, low_row() + 8));
        __syncthreads();
        wgmma_fence();
        const std::uint64_t a = operand(scores), b = operand(v(step));
#pragma unroll
        for (int i = 0; i < steps; ++i) wgmma<T, 64, true>(accumulators(o), along(a, i), down(b, i), true);
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_hold(accumulators(o));
        write(o, step);
      } else {
        set_operands(state, step);
        __syncthreads();
        if (call.normalised) put_sums(step);
        __syncthreads();
      }
      if (more) advance(state, step);
      if (more && call.scaled) set_products(products(step + 1), &near, decay, place(step + 1));
    }
  }
};

__global__ __launch_bounds__(block_threads, 1) void outputs_kernel(const __grid_constant__ ScanCall call,
                                                                   const __grid_constant__ Maps maps) {
  Outputs{{call, maps}}.walk();
}

}  // namespace
}  // namespace wide

void outputs_of_wide_runs(const ScanCall& call, const Launch& launch) {
  wide::launch("scan outputs of wide runs", wide::outputs_kernel, walk::grid_of(call), wide::Room::bytes, call,
               wide::Maps(call, false), launch);
}

}  // namespace longstride::kernels::cuda::scanning
