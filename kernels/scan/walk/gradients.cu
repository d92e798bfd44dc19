// The gradients of a run of chunks, by one block: forwards it carries S and keeps it before every chunk, as products
// read it, in memory that the block uses again and so stays in the second-level cache; backwards it carries G. The
// gradients of the decays are (gradients.cuh)
//   d log a_t = <S, decay G> + sum over rows i from t on of (q_i dq_i - k_i dk_i) + sum over rows j before t of x_j
#include "kernels/base/cuda_launch.cuh"
#include "kernels/scan/choice.h"
#include "kernels/scan/walk/scores.cuh"

namespace longstride::kernels::cuda::scanning {
namespace walk {
namespace {

template <class T, int K, int V>
struct GradientsMemory {
  static constexpr int groups = Shares<K>::groups;
  static constexpr std::size_t q = 0, k = bytes_of_tile<T>(chunk, K), v = 2 * k, dout = v + bytes_of_tile<T>(chunk, V),
                               before = dout + bytes_of_tile<T>(chunk, V), behind = before + Staged<T, K, V>::bytes,
                               scores = behind + Staged<T, K, V>::bytes,
                               errors = scores + bytes_of_tile<T>(chunk, chunk),
                               near = errors + bytes_of_tile<T>(chunk, chunk), products = near + sizeof(Near),
                               numbers = products + 2 * sizeof(Products), own = numbers + sizeof(RowNumbers),
                               through = own + sizeof(float) * chunk,
                               from_keys = through + sizeof(float) * groups * chunk,
                               alive = from_keys + sizeof(float) * groups * chunk,
                               small = alive + sizeof(float) * chunk,
                               scales = small + sizeof(float) * Shares<K>::warps_of_block,
                               bytes = scales + sizeof(float) * most_run_chunks;
  // A state of the walk forwards: tile and z.
  static constexpr std::size_t kept = walk_state_bytes(K, V);
  static_assert(kept == bytes_of_tile<T>(K, V) + sizeof(float) * K && bytes <= 227 * 1024);
};

template <class T, int K, int V>
struct Gradients {
  using Memory = GradientsMemory<T, K, V>;
  using Share = Shares<K>;
  using KeyTile = Swizzled<T, K>;
  using ValueTile = Swizzled<T, V>;
  using Square = Swizzled<T, chunk>;
  static constexpr int value_blocks = Share::template blocks<V>, key_columns = K / Share::groups;

  const ScanCall& call;
  const int unit, run, first = run * call.run_chunks,
                       count = min(call.run_chunks, (call.n + chunk - 1) / chunk - first);
  char* const kept = call.kept + static_cast<std::int64_t>(blockIdx.x) * call.run_chunks * Memory::kept;
  const int row = Share::strip() * part;
  const KeyTile q{reinterpret_cast<T*>(memory + Memory::q)}, k{reinterpret_cast<T*>(memory + Memory::k)};
  const ValueTile v{reinterpret_cast<T*>(memory + Memory::v)}, dout{reinterpret_cast<T*>(memory + Memory::dout)};
  const Staged<T, K, V> before{memory + Memory::before}, behind{memory + Memory::behind};
  const Square scores{reinterpret_cast<T*>(memory + Memory::scores)},
      errors{reinterpret_cast<T*>(memory + Memory::errors)};
  Near& near = *reinterpret_cast<Near*>(memory + Memory::near);
  Products* const both_products = reinterpret_cast<Products*>(memory + Memory::products);
  const Products& products = both_products[0];
  RowNumbers& numbers = *reinterpret_cast<RowNumbers*>(memory + Memory::numbers);
  float *const own = reinterpret_cast<float*>(memory + Memory::own),
               *const through = reinterpret_cast<float*>(memory + Memory::through),
               *const from_keys = reinterpret_cast<float*>(memory + Memory::from_keys),
               *const alive = reinterpret_cast<float*>(memory + Memory::alive),
               *const small = reinterpret_cast<float*>(memory + Memory::small),
               *const scales = reinterpret_cast<float*>(memory + Memory::scales);

  __device__ Gradients(const ScanCall& of_call, int of_unit, int of_run) : call(of_call), unit(of_unit), run(of_run) {}

  __device__ Place place(int step) const { return {call, unit, first + step}; }
  __device__ std::int64_t state_of_run() const {
    return (static_cast<std::int64_t>(unit) * call.chunks + run) * call.key_size * call.columns;
  }

  // ---- Forwards ----
  __device__ void start_keys(int step) const {
    const Place at = place(step);
    start_rows<Share::threads_of_block>(step % 2 == 0 ? k : q, call.k, at, call.key_size, call.keys_aligned);
    start_rows<Share::threads_of_block>(step % 2 == 0 ? v : dout, call.v, at, call.value_size, call.values_aligned);
    copies_commit();
  }
  // The warp's rows of a state as `stage` would write them, and where `start_state` finds them.
  __device__ void keep(State<T, K, V>& state, int step) const {
    char* const to = kept + step * Memory::kept;
    const ValueTile tile{reinterpret_cast<T*>(to)};
    float* const z = reinterpret_cast<float*>(to + bytes_of_tile<T>(K, V));
    const float scale = state.divisor(before.room), inverse = 1 / scale;
    const int strip = state.row();
    each_word<T>(state.s, inverse,
                 [&](int r, int c, const uint4& word) { *reinterpret_cast<uint4*>(tile.at(strip + r, c)) = word; });
    if (this_lane() % 4 == 0) {
      z[strip + this_lane() / 4] = state.z[0];
      z[strip + this_lane() / 4 + 8] = state.z[2];
    }
    if (this_thread() == 0) scales[step] = scale;
  }
  __device__ void walk_forwards() {
    State<T, K, V> state;
    state.load(call, call.states.before + state_of_run());
    if (call.normalised) numbers.set({}, false);
    if (count > 1) {
      start_keys(0);
      if (call.scaled) set_products(both_products[0], nullptr, fetch_decay(call, place(0)));
    }
#pragma unroll 1
    for (int step = 0; step + 1 < count; ++step) {
      copies_wait<0>();
      __syncthreads();
      const bool more = step + 2 < count;
      float decay = 1;
      if (more) {
        start_keys(step + 1);
        if (call.scaled) decay = fetch_decay(call, place(step + 1));
      }
      keep(state, step);
      const Products& now = both_products[step % 2];
      if (call.scaled) {
        const float over = now.whole();
        state.scale(over, over);
      }
      state.add(
          step % 2 == 0 ? k : q, step % 2 == 0 ? v : dout, call.scaled,
          [&](int p, int r) {
            const float beyond = now.behind(p);
            return float2{beyond * now.out[r], beyond * now.out[r + 1]};
          },
          call.normalised ? numbers.of_z : nullptr);
      if (more && call.scaled) set_products(both_products[(step + 1) % 2], nullptr, decay);
    }
    __syncthreads();
    keep(state, count - 1);
  }

  // ---- Backwards ----
  __device__ void start(int step) const {
    const Place at = place(step);
    start_rows<Share::threads_of_block>(q, call.q, at, call.key_size, call.keys_aligned);
    start_rows<Share::threads_of_block>(k, call.k, at, call.key_size, call.keys_aligned);
    start_rows<Share::threads_of_block>(v, call.v, at, call.value_size, call.values_aligned);
    start_rows<Share::threads_of_block>(dout, call.dout, at, call.value_size, call.values_aligned);
    const char* const from = kept + step * Memory::kept;
    for (int i = this_thread(); i < static_cast<int>(Memory::kept / 16); i += Share::threads_of_block)
      copy_async_16(memory + Memory::before + 16 * i, from + 16 * i, true);
    copies_commit();
  }
  __device__ void set_squares() {
    set_scores<K>(scores, q, k, call, products, near, call.normalised ? numbers.inverse : nullptr);
    Strip<1> sums[Share::template blocks<chunk>];
    multiply_visible<K>(sums, dout, v);
    each_block<K>([&](int b, int early) {
      if (call.normalised)
        sums[b].each_pair([&](int r, int, float& x, float& y) {
          x = (x + numbers.of_z[row + r]) * numbers.inverse[row + r];
          y = (y + numbers.of_z[row + r]) * numbers.inverse[row + r];
        });
      // A position's own is kept apart: what it adds to dq and dk would cancel in the sums for the decays, but not to
      // the last bit.
      each_visible(sums[b], products, near, Share::strip(), early, call.scaled,
                   [&](int query, int key, float x, float y) {
                     if (key == query) own[query] = x;
                     if (key + 1 == query) own[query] = y;
                     errors.set_pair(query, key, key == query ? 0.0f : x, key + 1 == query ? 0.0f : y);
                   });
    });
  }
  template <int Blocks, class Tile>
  __device__ void add_earlier(Strip<Blocks>& sum, const Tile& right, int column) const {
    for (int p = 0; p <= Share::strip(); ++p) add_block(sum, errors, right, p, column);
  }
  template <int Blocks, class Tile>
  __device__ void add_later(Strip<Blocks>& sum, const Square& square, const Tile& right, int column) const {
    for (int p = Share::strip(); p < parts; ++p) add_block(sum, Across<Square>{square}, right, p, column);
  }
  template <int Blocks, class Left, class Tile>
  __device__ void add_block(Strip<Blocks>& sum, const Left& left, const Tile& right, int p, int column) const {
    std::uint32_t a[4];
    load_left(a, left, row, p * part);
#pragma unroll
    for (int b = 0; b < Blocks; ++b) {
      std::uint32_t x[4];
      load_right(x, right, p * part, column + 16 * b);
      multiply_add<T>(sum.d[b][0], a, x[0], x[1]);
      multiply_add<T>(sum.d[b][1], a, x[2], x[3]);
    }
  }
  // Sums over columns of the products, element by element, with a tile's rows.
  template <int Blocks>
  __device__ void add_dots(float (&dots)[2], Strip<Blocks>& sum, const KeyTile& tile, int column, float sign) const {
    sum.each_pair([&](int r, int c, float x, float y) {
      const float2 other = tile.pair(row + r, column + c);
      dots[r / 8] += sign * (x * other.x + y * other.y);
    });
  }
  template <int Blocks>
  __device__ void add_own(Strip<Blocks>& sum, const KeyTile& tile, int column) const {
    sum.each_pair([&](int r, int c, float& x, float& y) {
      const float2 other = tile.pair(row + r, column + c);
      x += own[row + r] * other.x;
      y += own[row + r] * other.y;
    });
  }
  __device__ float factor(bool of_queries, int at) const {
    const float decays = !call.scaled ? 1.0f : of_queries ? products.from_start(at) : products.to_end(at);
    return of_queries && call.normalised ? decays * numbers.inverse[at] : decays;
  }
  __device__ void write_dv(const Place& at, float scale) const {
    const int column = Share::group_number() * (V / Share::groups), low = row + this_lane() / 4;
    Strip<value_blocks> sum;
    set_zero(sum);
    multiply<K / 16>(sum, k, row, behind.tile, column);
    scale_rows(sum, scale * factor(false, low), scale * factor(false, low + 8));
    add_later(sum, scores, dout, column);
    store_rows<T>(sum, call.dv, at, row, column, call.value_size, call.values_aligned);
  }
  __device__ void write_dq(const Place& at, float scale, float (&dots)[2]) const {
    const int column = Share::group_number() * key_columns, low = row + this_lane() / 4;
    Strip<key_columns / 16> sum;
    set_zero(sum);
    multiply<V / 16>(sum, dout, row, Across<ValueTile>{before.tile}, column);
    const float of_low = factor(true, low), of_high = factor(true, low + 8);
    scale_rows(sum, scale, scale);
    if (call.normalised)
      sum.each_pair([&](int r, int c, float& x, float& y) {
        x += numbers.of_z[row + r] * before.z[column + c];
        y += numbers.of_z[row + r] * before.z[column + c + 1];
      });
    scale_rows(sum, of_low, of_high);
    add_earlier(sum, k, column);
    if (call.ddecay != nullptr) add_dots(dots, sum, q, column, 1);
    add_own(sum, k, column);
    store_rows<T>(sum, call.dq, at, row, column, call.key_size, call.keys_aligned);
  }
  __device__ void write_dk(const Place& at, float scale, float (&dots)[2], float (&of_keys)[2]) const {
    constexpr int half = key_columns / 2;
    const int low = row + this_lane() / 4;
#pragma unroll 1
    for (int column = Share::group_number() * key_columns, h = 0; h < 2; ++h, column += half) {
      Strip<half / 16> sum, within;
      set_zero(sum);
      multiply<V / 16>(sum, v, row, Across<ValueTile>{behind.tile}, column);
      scale_rows(sum, scale, scale);
      if (call.normalised)
        sum.each_pair([&](int, int c, float& x, float& y) {
          x += behind.z[column + c];
          y += behind.z[column + c + 1];
        });
      scale_rows(sum, factor(false, low), factor(false, low + 8));
      set_zero(within);
      add_later(within, errors, q, column);
      if (call.ddecay != nullptr) {
        add_dots(of_keys, sum, k, column, 1);
        add_dots(dots, within, k, column, -1);
      }
      add_own(within, q, column);
#pragma unroll
      for (int b = 0; b < half / 16; ++b)
#pragma unroll
        for (int e = 0; e < 8; ++e) sum.d[b][e / 4][e % 4] += within.d[b][e / 4][e % 4];
      store_rows<T>(sum, call.dk, at, row, column, call.key_size, call.keys_aligned);
    }
  }
  __device__ void put_rows(float* to, const float (&dots)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = dots[r];
      for (int step = 1; step < 4; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
      if (this_lane() % 4 == 0) to[Share::group_number() * chunk + row + this_lane() / 4 + 8 * r] = sum;
    }
  }
  // The warp's part of <S, decay G>.
  __device__ void put_crossing(State<T, K, V>& gradient, float scale) const {
    float sum = 0;
    gradient.s.each_pair([&](int r, int c, float x, float y) {
      const float2 other = before.tile.pair(gradient.row() + r, c);
      sum += x * other.x + y * other.y;
    });
    sum *= scale;
    if (call.normalised && this_lane() % 4 == 0) {
      const int at = gradient.row() + this_lane() / 4;
      sum += gradient.z[0] * before.z[at] + gradient.z[2] * before.z[at + 8];
    }
    for (int step = 1; step < warp_threads; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
    const float over = products.whole();
    if (this_lane() == 0) small[this_warp()] = over > 0 ? over * sum : 0.0f;
  }
  // By a warp, two rows a lane, once all others have put their parts. These cancel.
  __device__ void write_ddecay(const Place& at) const {
    if (this_warp() != 0 || call.ddecay == nullptr) return;
    const int lane = this_lane(), t = 2 * lane;
    double late[2] = {}, early[2] = {}, crossing = 0;
#pragma unroll
    for (int g = 0; g < Share::groups; ++g)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        late[i] += through[g * chunk + t + i];
        early[i] += from_keys[g * chunk + t + i];
      }
    for (int w = 0; w < Share::warps_of_block; ++w) crossing += small[w];
    double from = late[0] + late[1], to = early[0] + early[1];
#pragma unroll
    for (int step = 1; step < warp_threads; step *= 2) {
      const double behind_it = __shfl_sync(~0u, from, min(lane + step, warp_threads - 1)),
                   before_it = __shfl_sync(~0u, to, max(lane - step, 0));
      if (lane + step < warp_threads) from += behind_it;
      if (lane >= step) to += before_it;
    }
    const double earlier = to - early[0] - early[1];
    const double x[2] = {crossing + from + earlier, crossing + from - late[0] + earlier + early[0]};
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (t + i < at.count) call.ddecay[at.at(call, t + i)] = alive[t + i] > 0 ? static_cast<float>(x[i]) : 0.0f;
  }
  __device__ void walk_backwards() {
    State<T, K, V> gradient;
    gradient.load(call, call.gradients.behind + state_of_run());
#pragma unroll 1
    for (int step = count - 1; step >= 0; --step) {
      const Place at = place(step);
      __syncthreads();
      start(step);
      if (step + 1 < count) write_ddecay(place(step + 1));
      if (call.scaled) set_products(both_products[0], &near, fetch_decay(call, at));
      if (call.normalised) numbers.set(RowNumbers::fetch(call, at, true), true);
      const float scale = gradient.stage(behind, call.normalised);
      copies_wait<0>();
      __syncthreads();
      if (call.scaled && this_thread() < chunk) alive[this_thread()] = products.a[this_thread()];
      set_squares();
      __syncthreads();
      float dots[2] = {}, of_keys[2] = {};
      write_dv(at, scale);
      write_dq(at, scales[step], dots);
      write_dk(at, scale, dots, of_keys);
      if (call.ddecay != nullptr) {
        put_rows(through, dots);
        put_rows(from_keys, of_keys);
        put_crossing(gradient, scales[step]);
      }
      if (step == 0) break;
      if (call.scaled) {
        const float over = products.whole();
        gradient.scale(over, over);
      }
      gradient.add(
          q, dout, call.scaled || call.normalised,
          [&](int, int r) {
            return float2{factor(true, r), factor(true, r + 1)};
          },
          call.normalised ? numbers.of_z : nullptr);
    }
    __syncthreads();
    write_ddecay(place(0));
  }
};

template <class T, int K, int V>
__global__ __launch_bounds__(Shares<K>::threads_of_block, blocks_of_multiprocessor<K, V>) void gradients_kernel(
    const __grid_constant__ ScanCall call) {
  for (int task = static_cast<int>(blockIdx.x); task < call.units * call.chunks; task += static_cast<int>(gridDim.x)) {
    Gradients<T, K, V> gradients(call, task / call.chunks, task % call.chunks);
    gradients.walk_forwards();
    gradients.walk_backwards();
    __syncthreads();
  }
}

}  // namespace
}  // namespace walk

template <class T>
void gradients_of_runs(const ScanCall& call, const Launch& launch) {
  walk::with_sizes(call, [&](auto key, auto value) {
    constexpr int K = decltype(key)::value, V = decltype(value)::value;
    constexpr std::size_t bytes = walk::GradientsMemory<T, K, V>::bytes;
    const auto kernel = walk::gradients_kernel<T, K, V>;
    allow_shared(kernel, bytes);
    const int blocks = std::min(call.units * call.chunks, walk_blocks(call.key_size, call.value_size));
    run("scan gradients of runs", kernel, {static_cast<unsigned>(blocks), walk::Shares<K>::threads_of_block, bytes},
        launch, call);
  });
}

template void gradients_of_runs<__nv_bfloat16>(const ScanCall&, const Launch&);
template void gradients_of_runs<__half>(const ScanCall&, const Launch&);

}  // namespace longstride::kernels::cuda::scanning
