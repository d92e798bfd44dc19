// The gradients of runs with a decay per head, or none.
#include "kernels/scan/walk/gradients.cuh"
#include "kernels/scan/walk/head_decays.cuh"

namespace longstride::kernels::cuda::scanning {
namespace walk {
namespace {

template <class T, int K, int V>
struct HeadMemory : GradientsMemory<T, K, V> {
  static constexpr std::size_t near = GradientsMemory<T, K, V>::rest, products = near + sizeof(Near),
                               decays = products + 2 * sizeof(Products), bytes = decays + sizeof(HeadDecayParts<K>);
  static_assert(bytes <= 227 * 1024);
};

template <class T, int K, int V>
struct HeadGradients : RunGradients<T, K, V> {
  using Memory = HeadMemory<T, K, V>;
  using Base = RunGradients<T, K, V>;
  using Base::call, Base::row, Base::q, Base::k, Base::v, Base::dout, Base::before, Base::behind, Base::scores,
      Base::errors, Base::numbers, Base::own, Base::scales, Base::count, Base::place, Base::value_blocks,
      Base::key_columns;
  using typename Base::KeyTile;
  using typename Base::Share;
  using typename Base::Square;

  Near& near = *reinterpret_cast<Near*>(memory + Memory::near);
  Products* const both_products = reinterpret_cast<Products*>(memory + Memory::products);
  const Products& products = both_products[0];
  HeadDecayParts<K>& decays = *reinterpret_cast<HeadDecayParts<K>*>(memory + Memory::decays);

  using Base::Base;

  __device__ void start_keys(int step) const {
    const Place at = place(step);
    start_rows<Share::threads_of_block>(step % 2 == 0 ? k : q, call.k, at, call.key_size, call.keys_aligned);
    start_rows<Share::threads_of_block>(step % 2 == 0 ? v : dout, call.v, at, call.value_size, call.values_aligned);
    copies_commit();
  }
  __device__ void walk_forwards() {
    State<T, K, V> state;
    state.load(call, call.states.before + this->state_of_run());
    if (call.normalised) numbers.set({}, false);
    if (count > 1) {
      start_keys(0);
      if (call.scaled) set_products(both_products[0], nullptr, read_decay(call, place(0)), place(0));
    }
#pragma unroll 1
    for (int step = 0; step + 1 < count; ++step) {
      copies_wait<0>();
      __syncthreads();
      const bool more = step + 2 < count;
      ReadDecay decay;
      if (more) {
        start_keys(step + 1);
        if (call.scaled) decay = read_decay(call, place(step + 1));
      }
      this->keep(state, step);
      const Products& now = both_products[step % 2];
      if (call.scaled) {
        const float over = now.whole();
        state.scale(over, over);
      }
      state.add(
          step % 2 == 0 ? k : q, step % 2 == 0 ? v : dout,
          [&](auto& a, int p) {
            if (call.scaled) scale_to_end<T>(a, now, p);
          },
          call.normalised ? numbers.of_z : nullptr);
      if (more && call.scaled) set_products(both_products[(step + 1) % 2], nullptr, decay, place(step + 1));
    }
    __syncthreads();
    this->keep(state, count - 1);
  }

  __device__ void set_squares() {
    set_scores<K>(scores, q, k, call, products, near, call.normalised ? numbers.inverse : nullptr);
    this->each_error_block([&](Strip<1>& sum, int early) {
      each_visible(sum, products, near, Share::strip(), early, call.scaled,
                   [&](int query, int key, float x, float y) { this->put_error(query, key, x, y); });
    });
  }
  template <int Blocks, class Tile>
  __device__ void add_later(Strip<Blocks>& sum, const Square& square, const Tile& right, int column) const {
    for (int p = Share::strip(); p < parts; ++p) this->add_block(sum, Across<Square>{square}, right, p, column);
  }
  __device__ float factor(bool of_queries, int at) const {
    return !call.scaled ? 1.0f : of_queries ? products.from_start(at) : products.to_end(at);
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
    this->read_before(sum, scale, column);
    scale_rows(sum, factor(true, low), factor(true, low + 8));
    for (int p = 0; p <= Share::strip(); ++p) this->add_block(sum, errors, k, p, column);
    if (call.ddecay != nullptr) add_dots<K>(dots, sum, q, column, 1);
    this->add_own(sum, k, column);
    store_rows<T>(sum, call.dq, at, row, column, call.key_size, call.keys_aligned);
  }
  __device__ void write_dk(const Place& at, float scale, float (&dots)[2], float (&of_keys)[2]) const {
    constexpr int half = key_columns / 2;
    const int low = row + this_lane() / 4;
#pragma unroll 1
    for (int column = Share::group_number() * key_columns, h = 0; h < 2; ++h, column += half) {
      Strip<half / 16> sum, within;
      this->read_behind(sum, scale, column);
      scale_rows(sum, factor(false, low), factor(false, low + 8));
      set_zero(within);
      add_later(within, errors, q, column);
      if (call.ddecay != nullptr) {
        add_dots<K>(of_keys, sum, k, column, 1);
        add_dots<K>(dots, within, k, column, -1);
      }
      this->add_own(within, q, column);
      add_strip(sum, within);
      store_rows<T>(sum, call.dk, at, row, column, call.key_size, call.keys_aligned);
    }
  }
  __device__ void walk_backwards() {
    State<T, K, V> gradient;
    gradient.load(call, call.gradients.behind + this->state_of_run());
#pragma unroll 1
    for (int step = count - 1; step >= 0; --step) {
      const Place at = place(step);
      __syncthreads();
      this->start(step);
      if (step + 1 < count && call.ddecay != nullptr) decays.write(call, place(step + 1));
      ReadDecay decay;
      RowNumbers::Fetched fetched;
      if (call.scaled) decay = read_decay(call, at);
      fetched = RowNumbers::fetch(call, at, true);
      const float scale = gradient.stage(behind, call.normalised);
      if (call.scaled) set_products(both_products[0], &near, decay, at);
      if (call.normalised) numbers.set(fetched, true);
      copies_wait<0>();
      __syncthreads();
      if (call.scaled) decays.set_alive(products);
      set_squares();
      __syncthreads();
      float dots[2] = {}, of_keys[2] = {};
      write_dv(at, scale);
      write_dq(at, scales[step], dots);
      write_dk(at, scale, dots, of_keys);
      if (call.ddecay != nullptr) {
        put_row_sums<K>(decays.through, dots);
        put_row_sums<K>(decays.from_keys, of_keys);
        decays.put_crossing(gradient, before, scales[step], products.whole(), call.normalised);
      }
      if (step == 0) break;
      if (call.scaled) {
        const float over = products.whole();
        gradient.scale(over, over);
      }
      gradient.add(
          q, dout,
          [&](auto& a, int p) {
            if (!call.scaled && !call.normalised) return;
            const int r = p * part + this_lane() % 4 * 2;
            const auto of_row = [&](int i) { return factor(true, i) * (call.normalised ? numbers.inverse[i] : 1.0f); };
            scale_fragment<T>(a, 1, 1, {of_row(r), of_row(r + 1)}, {of_row(r + 8), of_row(r + 9)});
          },
          call.normalised ? numbers.of_z : nullptr);
    }
    __syncthreads();
    if (call.ddecay != nullptr) decays.write(call, place(0));
  }
};

template <class T, int K, int V>
__global__ __launch_bounds__(Shares<K>::threads_of_block, blocks_of_multiprocessor<K, V>) void gradients_kernel(
    const __grid_constant__ ScanCall call) {
  walk_runs<HeadGradients<T, K, V>>(call);
}

}  // namespace
}  // namespace walk

template <class T>
void gradients_of_runs(const ScanCall& call, const Launch& launch) {
  walk::with_sizes(call, [&](auto key, auto value) {
    constexpr int K = decltype(key)::value, V = decltype(value)::value;
    walk::launch_gradients(walk::gradients_kernel<T, K, V>, call, walk::Shares<K>::threads_of_block,
                           walk::HeadMemory<T, K, V>::bytes, launch);
  });
}

template void gradients_of_runs<__nv_bfloat16>(const ScanCall&, const Launch&);
template void gradients_of_runs<__half>(const ScanCall&, const Launch&);

}  // namespace longstride::kernels::cuda::scanning
