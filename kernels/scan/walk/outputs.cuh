// The outputs of a run of chunks, by one block that carries S from the run's start.
#pragma once
#include "kernels/base/cuda_launch.cuh"
#include "kernels/scan/walk/scores.cuh"

namespace longstride::kernels::cuda::scanning::walk {

template <class T, int K, int V>
struct OutputsMemory {
  static constexpr std::size_t q = 0, k = bytes_of_tile<T>(chunk, K), v = 2 * k, next = v + bytes_of_tile<T>(chunk, V),
                               state = 2 * next, scores = state + Staged<T, K, V>::bytes,
                               near = scores + bytes_of_tile<T>(chunk, chunk), products = near + sizeof(Near),
                               ones = products + 2 * sizeof(Products), bytes = ones + sizeof(float) * chunk;
};

template <class T, int K, int V>
struct Outputs {
  using Memory = OutputsMemory<T, K, V>;
  using Share = Shares<K>;
  static constexpr int blocks = Share::template blocks<V>;
  const ScanCall& call;
  const int unit = static_cast<int>(blockIdx.y), run = static_cast<int>(blockIdx.x), first = run * call.run_chunks,
            count = min(call.run_chunks, (call.n + chunk - 1) / chunk - first);
  const Staged<T, K, V> staged{memory + Memory::state};
  const Swizzled<T, chunk> scores{reinterpret_cast<T*>(memory + Memory::scores)};
  Near& near = *reinterpret_cast<Near*>(memory + Memory::near);
  float* const ones = reinterpret_cast<float*>(memory + Memory::ones);

  __device__ Place place(int step) const { return {call, unit, first + step}; }
  template <int C>
  __device__ Swizzled<T, C> tile(int step, std::size_t at) const {
    return {reinterpret_cast<T*>(memory + at + step % 2 * Memory::next)};
  }
  __device__ Swizzled<T, K> q(int step) const { return tile<K>(step, Memory::q); }
  __device__ Swizzled<T, K> k(int step) const { return tile<K>(step, Memory::k); }
  __device__ Swizzled<T, V> v(int step) const { return tile<V>(step, Memory::v); }
  __device__ Products& products(int step) const {
    return reinterpret_cast<Products*>(memory + Memory::products)[step % 2];
  }
  __device__ void start(int step) const {
    const Place at = place(step);
    start_rows<Share::threads_of_block>(q(step), call.q, at, call.key_size, call.keys_aligned);
    start_rows<Share::threads_of_block>(k(step), call.k, at, call.key_size, call.keys_aligned);
    start_rows<Share::threads_of_block>(v(step), call.v, at, call.value_size, call.values_aligned);
    copies_commit();
  }

  __device__ void write(int step, float scale) const {
    const Place at = place(step);
    const Products& now = products(step);
    const int row = Share::strip() * part, column = Share::group_number() * (V / Share::groups),
              low = row + this_lane() / 4, high = low + 8;
    Strip<blocks> o;
    set_zero(o);
    float below[4] = {};
    multiply<K / 16>(o, q(step), row, staged.tile, column);
    if (call.normalised) add_state_below(below, q(step), row);
    const float of_low = call.scaled ? now.from_start(low) : 1.0f, of_high = call.scaled ? now.from_start(high) : 1.0f;
    scale_rows(o, scale * of_low, scale * of_high);
    below[0] *= of_low;
    below[2] *= of_high;
    add_seen(o, below, v(step), row, column);
    if (call.normalised) divide<K>(o, below, call, at);
    store_rows<T>(o, call.o, at, row, column, call.value_size, call.values_aligned);
  }
  // q . z, in columns 0 of a product.
  __device__ void add_state_below(float (&below)[4], Swizzled<T, K> queries, int row) const {
#pragma unroll
    for (int s = 0; s < K / 16; ++s) {
      std::uint32_t a[4];
      load_left(a, queries, row, 16 * s);
      add_column<T>(below, a, staged.z + 16 * s);
    }
  }
  __device__ void add_seen(Strip<blocks>& o, float (&below)[4], Swizzled<T, V> values, int row, int column) const {
#pragma unroll
    for (int p = 0; p < parts; ++p) {
      if (p > Share::strip()) break;
      std::uint32_t a[4];
      load_left(a, scores, row, p * part);
      add_rows<T>(o, a, values, p * part, column);
      if (call.normalised) add_column<T>(below, a, ones);
    }
  }
  // S before the run.
  __device__ void load(State<T, K, V>& state) const {
    const std::int64_t size = static_cast<std::int64_t>(call.key_size) * call.columns;
    state.load(call, call.states.before + (static_cast<std::int64_t>(unit) * call.chunks + run) * size);
    if (this_thread() < chunk) ones[this_thread()] = 1;
  }
  __device__ void walk() {
    State<T, K, V> state;
    start(0);
    load(state);
    if (call.scaled) set_products(products(0), &near, read_decay(call, place(0)), place(0));
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      copies_wait<0>();
      __syncthreads();
      const bool more = step + 1 < count;
      ReadDecay decay;
      if (more) {
        start(step + 1);
        if (call.scaled) decay = read_decay(call, place(step + 1));
      }
      set_scores<K>(scores, q(step), k(step), call, products(step), near);
      const float scale = state.stage(staged, call.normalised);
      __syncthreads();
      const Products& now = products(step);
      if (more) {
        if (call.scaled) {
          const float over = now.whole();
          state.scale(over, over);
        }
        state.add(
            k(step), v(step),
            [&](auto& a, int p) {
              if (call.scaled) scale_to_end<T>(a, now, p);
            },
            call.normalised ? ones : nullptr);
      }
      write(step, scale);
      if (more && call.scaled) set_products(products(step + 1), &near, decay, place(step + 1));
    }
  }
};

}  // namespace longstride::kernels::cuda::scanning::walk
