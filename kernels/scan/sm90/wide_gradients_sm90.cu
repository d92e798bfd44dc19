// The gradients of runs (walk/gradients.cuh) for wide heads, but those of decays. A block carries S forwards, keeping
// it before every chunk in memory, then G backwards. With V' = E V, dO' = W dO / denominators and scores P and errors,
//   dV = E K G + P^T dO,   dQ = dO' S^T + errors K,   dK = V' G^T + errors^T Q,   G before: decay G + Q^T dO'
// Two warpgroups compute scores, of 32 keys each, two errors; then one dV, and each the 64 channels of dQ and dK that
// it owns.
#include "kernels/base/cuda_launch.cuh"
#include "kernels/scan/sm90/wide.cuh"
#include "kernels/scan/walk/gradients.cuh"

namespace longstride::kernels::cuda::scanning {
namespace wide {
namespace {

constexpr int score_groups = 2, value_group = 2;

struct Room {
  static constexpr std::size_t staged = (StagedState::bytes + tile_alignment - 1) / tile_alignment * tile_alignment;
  static constexpr std::size_t q = 0, k = keys_bytes, v = 2 * keys_bytes, dout = v + tile_bytes,
                               before = dout + tile_bytes, behind = before + staged, scores = behind + staged,
                               errors = scores + tile_bytes, moved = errors + tile_bytes,
                               moved_values = moved + tile_bytes, column = moved_values + tile_bytes,
                               near = column + chunk * Column::row_bytes, full = near + sizeof(Near),
                               products = full + 16, numbers = products + 2 * sizeof(Products),
                               bytes = numbers + sizeof(RowNumbers);
  static constexpr std::size_t kept = walk_state_bytes(keys, values);
  static_assert(bytes + tile_alignment <= 227 * 1024 && kept % 16 == 0);
};

struct Gradients {
  using Memory = Room;
  const ScanCall& call;
  const Maps& maps;
  Places& places;
  const int unit, run, first = run * call.run_chunks,
                       count = min(call.run_chunks, (call.n + chunk - 1) / chunk - first), own = warpgroup();
  char* const shared = aligned_memory();
  char* const kept = call.kept + static_cast<std::int64_t>(blockIdx.x) * call.run_chunks * Memory::kept;
  char *const q = shared + Memory::q, *const k = shared + Memory::k, *const before_tiles = shared + Memory::before,
              *const behind_tiles = shared + Memory::behind;
  const Tile v = tile_at(shared + Memory::v), dout = tile_at(shared + Memory::dout),
             scores = tile_at(shared + Memory::scores), errors = tile_at(shared + Memory::errors),
             moved = tile_at(shared + Memory::moved), moved_values = tile_at(shared + Memory::moved_values);
  const StagedState before{before_tiles}, behind{behind_tiles};
  const Column column{shared + Memory::column};
  Near& near = *reinterpret_cast<Near*>(shared + Memory::near);
  Products* const both_products = reinterpret_cast<Products*>(shared + Memory::products);
  const Products& products = both_products[0];
  RowNumbers& numbers = *reinterpret_cast<RowNumbers*>(shared + Memory::numbers);

  __device__ Gradients(const ScanCall& of_call, const Maps& of_maps, Places& of_places, int task)
      : call(of_call), maps(of_maps), places(of_places), unit(task / of_call.chunks), run(task % of_call.chunks) {}

  __device__ Place place(int step) const { return {call, unit, first + step}; }
  __device__ std::int64_t state_of_run() const {
    return (static_cast<std::int64_t>(unit) * call.chunks + run) * call.key_size * call.columns;
  }

  // ---- Forwards: steps take turns at two places for keys and values ----

  __device__ void start_forwards(int step) const {
    if (thread_now() != 0) return;
    const Place at = place(step);
    std::uint64_t* const full = &places.full[step % 2];
    barrier_arrive_expect(full, keys_bytes + tile_bytes);
    load_keys(step % 2 == 0 ? k : q, maps.k, at, full);
    load_values(step % 2 == 0 ? v : dout, maps.v, at, full);
  }
  __device__ void keep(BlockState& state, int step) const { keep_state(state, kept + step * Memory::kept, 1); }
  __device__ void walk_forwards() {
    BlockState state;
    state.load(call, call.states.before + state_of_run());
    column.clear(chunk);
    if (count > 1) {
      start_forwards(0);
      if (call.scaled) set_products(both_products[0], nullptr, read_decay(call, place(0)), place(0));
    }
#pragma unroll 1
    for (int step = 0; step + 1 < count; ++step) {
      __syncthreads();
      const bool more = step + 2 < count;
      ReadDecay decay;
      if (more) {
        start_forwards(step + 1);
        if (call.scaled) decay = read_decay(call, place(step + 1));
      }
      keep(state, step);
      places.wait(step % 2);
      const Products& now = both_products[step % 2];
      const auto to_end = [&](int r) { return call.scaled ? now.to_end(r) : 1.0f; };
      scale_tile(moved, step % 2 == 0 ? v : dout, to_end);
      if (call.normalised && thread_now() < chunk) column.set(thread_now(), to_end(thread_now()));
      if (call.scaled) {
        const float over = now.whole();
        state.scale(over, over);
      }
      proxy_fence();
      __syncthreads();
      Addition addition;
      addition.start(state, part_of(step % 2 == 0 ? k : q, own), moved, column, call.normalised);
      if (more && call.scaled) set_products(both_products[(step + 1) % 2], nullptr, decay, place(step + 1));
      wgmma_wait<0>();
      addition.end(state, call.normalised);
    }
    keep(state, count - 1);
    proxy_fence_global();  // TMA reads what is kept
    __syncthreads();
  }

  // ---- Backwards ----

  // Numbers of a chunk's rows, read before they are needed.
  struct Read {
    ReadDecay decay;
    RowNumbers::Fetched numbers;
  };
  __device__ Read start(int step) const {
    const Place at = place(step);
    if (thread_now() == 0) {
      std::uint64_t* const full = &places.full[0];
      barrier_arrive_expect(full, 2 * (keys_bytes + tile_bytes) + Memory::kept);
      load_keys(q, maps.q, at, full);
      load_keys(k, maps.k, at, full);
      load_values(v, maps.v, at, full);
      load_values(dout, maps.dout, at, full);
      bulk_load(before_tiles, kept + step * Memory::kept, Memory::kept, full);
    }
    Read read;
    if (call.scaled) read.decay = read_decay(call, at);
    read.numbers = RowNumbers::fetch(call, at, true);
    return read;
  }
  // For which there is no room yet.
  __device__ void prefetch(int step) const {
    if (this_thread() != 0) return;
    const Place at = place(step);
    prefetch_keys(maps.q, at);
    prefetch_keys(maps.k, at);
    prefetch_values(maps.v, at);
    prefetch_values(maps.dout, at);
  }
  __device__ float from_start(int r) const { return call.scaled ? products.from_start(r) : 1.0f; }
  __device__ float to_end(int r) const { return call.scaled ? products.to_end(r) : 1.0f; }
  // W / denominators.
  __device__ float of_gradient(int r) const { return from_start(r) * (call.normalised ? numbers.inverse[r] : 1.0f); }
  __device__ void set_narrow_operands() const {
    scale_tile(moved, dout, [&](int r) { return of_gradient(r); });
    scale_tile(moved_values, v, [&](int r) { return to_end(r); });
    const int r = thread_now();
    if (call.normalised && r < chunk) column.set(r, of_gradient(r) * numbers.of_z[r]);
    proxy_fence();
  }

  // Scores of 32 keys, or errors.
  __device__ void start_scores(Strip<2>& sum) const {
    wgmma_fence();
#pragma unroll
    for (int t = 0; t < warpgroups; ++t) {
      const std::uint64_t a = operand(part_of(q, t)), b = operand(part_of(k, t), own % 2 * 32);
#pragma unroll
      for (int i = 0; i < steps; ++i) wgmma<T, 32, false>(accumulators(sum), along(a, i), along(b, i), t + i > 0);
    }
    wgmma_commit();
  }
  __device__ void start_errors(Strip<2>& sum) const {
    wgmma_fence();
    const std::uint64_t a = operand(dout), b = operand(v, own % 2 * 32);
#pragma unroll
    for (int i = 0; i < steps; ++i) wgmma<T, 32, false>(accumulators(sum), along(a, i), along(b, i), i > 0);
    wgmma_commit();
  }
  __device__ void put_scores(Strip<2>& sum) const {
    put_visible(scores, sum, own % 2 * 2, call, products, near, [&](int query, int, float& x, float& y) {
      if (!call.normalised) return;
      const float2 summed = unpack<T>(pack<T>(x, y));  // as the denominators have summed them
      x = summed.x * numbers.inverse[query];
      y = summed.y * numbers.inverse[query];
    });
  }
  __device__ void put_errors(Strip<2>& sum) const {
    if (call.normalised)
      sum.each_pair([&](int r, int, float& x, float& y) {
        x = (x + numbers.of_z[strip_row() + r]) * numbers.inverse[strip_row() + r];
        y = (y + numbers.of_z[strip_row() + r]) * numbers.inverse[strip_row() + r];
      });
    put_visible(errors, sum, own % 2 * 2, call, products, near, [](int, int, float, float) {});
  }
  __device__ void write_dv(const Place& at) const {
    Strip<4> dv;
    wgmma_fence();
#pragma unroll
    for (int t = 0; t < warpgroups; ++t) {
      const std::uint64_t a = operand(part_of(k, t)), b = operand(part_of(behind_tiles, t));
#pragma unroll
      for (int i = 0; i < steps; ++i) wgmma<T, 64, true>(accumulators(dv), along(a, i), down(b, i), t + i > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(accumulators(dv));
    scale_rows(dv, to_end(low_row()), to_end(low_row() + 8));
    wgmma_fence();
    const std::uint64_t a = operand(scores), b = operand(dout);
#pragma unroll
    for (int i = 0; i < steps; ++i) wgmma_rows<T>(accumulators(dv), down(a, i), down(b, i), true);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(accumulators(dv));
    store_rows<T>(dv, call.dv, at, strip_row(), 0, call.value_size, true);
  }
  // The part that z adds: a number of the row times one of the channel.
  __device__ void add_of_z(Strip<4>& sum, float of_low, float of_high, const float* z) const {
    if (!call.normalised) return;
    sum.each_pair([&](int r, int c, float& x, float& y) {
      const float2 of_channels = *reinterpret_cast<const float2*>(z + own * chunk + c);
      const float of_row = r < 8 ? of_low : of_high;
      x += of_row * of_channels.x;
      y += of_row * of_channels.y;
    });
  }
  // The warpgroup's channels; registers do not suffice for both at once.
  __device__ void write_dq(const Place& at) const {
    Strip<4> dq;
    wgmma_fence();
    const std::uint64_t of_dout = operand(moved), state = operand(part_of(before_tiles, own)),
                        of_errors = operand(errors), of_keys = operand(part_of(k, own));
#pragma unroll
    for (int i = 0; i < steps; ++i) wgmma<T, 64, false>(accumulators(dq), along(of_dout, i), along(state, i), i > 0);
#pragma unroll
    for (int i = 0; i < steps; ++i) wgmma<T, 64, true>(accumulators(dq), along(of_errors, i), down(of_keys, i), true);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(accumulators(dq));
    const auto of_z = [&](int r) { return call.normalised ? of_gradient(r) * numbers.of_z[r] : 0.0f; };
    add_of_z(dq, of_z(low_row()), of_z(low_row() + 8), before.z);
    store_rows<T>(dq, call.dq, at, strip_row(), own * chunk, call.key_size, true);
  }
  __device__ void set_dk(Strip<4>& dk) const {
    wgmma_fence();
    const std::uint64_t of_values = operand(moved_values), gradient = operand(part_of(behind_tiles, own)),
                        of_errors = operand(errors), of_queries = operand(part_of(q, own));
#pragma unroll
    for (int i = 0; i < steps; ++i)
      wgmma<T, 64, false>(accumulators(dk), along(of_values, i), along(gradient, i), i > 0);
#pragma unroll
    for (int i = 0; i < steps; ++i) wgmma_rows<T>(accumulators(dk), down(of_errors, i), down(of_queries, i), true);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(accumulators(dk));
    add_of_z(dk, to_end(low_row()), to_end(low_row() + 8), behind.z);
  }
  // Scores and errors, between barriers.
  __device__ void set_squares() const {
    Strip<2> sum;
    const bool scores_of_it = own < score_groups;
    scores_of_it ? start_scores(sum) : start_errors(sum);
    set_narrow_operands();
    wgmma_wait<0>();
    wgmma_hold(accumulators(sum));
    scores_of_it ? put_scores(sum) : put_errors(sum);
    proxy_fence();
    __syncthreads();
  }
  // G before the chunk.
  __device__ void advance(BlockState& gradient) const {
    if (call.scaled) {
      const float over = products.whole();
      gradient.scale(over, over);
    }
    Addition addition;
    addition.start(gradient, part_of(q, own), moved, column, call.normalised);
    wgmma_wait<0>();
    addition.end(gradient, call.normalised);
  }
  __device__ void walk_backwards() {
    BlockState gradient;
    gradient.load(call, call.gradients.behind + state_of_run());
    Read read = start(count - 1);
#pragma unroll 1
    for (int step = count - 1; step >= 0; --step) {
      const Place at = place(step);
      put_state(behind_tiles, gradient, own);
      if (call.normalised && lane_now() % 4 == 0) {
        behind.z[BlockState::row() + lane_now() / 4] = gradient.z[0];
        behind.z[BlockState::row() + lane_now() / 4 + 8] = gradient.z[2];
      }
      if (call.scaled) set_products(both_products[0], &near, read.decay, at);
      if (call.normalised) numbers.set(read.numbers, true);
      places.wait(0);
      proxy_fence();
      __syncthreads();
      if (step > 0) prefetch(step - 1);
      set_squares();
      if (own == value_group) write_dv(at);
      write_dq(at);
      advance(gradient);
      Strip<4> dk;
      set_dk(dk);
      proxy_fence();  // TMA fills what has been read
      __syncthreads();
      if (step > 0) read = start(step - 1);
      store_rows<T>(dk, call.dk, at, strip_row(), own * chunk, call.key_size, true);
    }
  }
};

__global__ __launch_bounds__(block_threads, 1) void gradients_kernel(const __grid_constant__ ScanCall call,
                                                                     const __grid_constant__ Maps maps) {
  Places places(aligned_memory() + Room::full);
  for (int task = static_cast<int>(blockIdx.x); task < call.units * call.chunks; task += static_cast<int>(gridDim.x)) {
    Gradients gradients(call, maps, places, task);
    gradients.walk_forwards();
    gradients.walk_backwards();
    __syncthreads();
  }
}

}  // namespace
}  // namespace wide

void gradients_of_wide_runs(const ScanCall& call, const Launch& launch) {
  const auto blocks =
      static_cast<unsigned>(std::min(call.units * call.chunks, walk_blocks(wide::keys, wide::values, true)));
  wide::launch("scan gradients of wide runs", wide::gradients_kernel, blocks, wide::Room::bytes, call,
               wide::Maps(call, true), launch);
}

}  // namespace longstride::kernels::cuda::scanning
