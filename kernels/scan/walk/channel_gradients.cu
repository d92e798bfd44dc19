// The gradients of runs with a decay per channel.
#include "kernels/scan/walk/channel_decays.cuh"
#include "kernels/scan/walk/gradients.cuh"

namespace longstride::kernels::cuda::scanning {
namespace walk {
namespace {

template <class T, int K, int V>
struct ChannelMemory : GradientsMemory<T, K, V> {
  static constexpr std::size_t scaled_q = GradientsMemory<T, K, V>::rest,
                               scaled_k = scaled_q + bytes_of_tile<T>(chunk, K),
                               products = scaled_k + bytes_of_tile<T>(chunk, K),
                               through = products + (sizeof(ChannelProducts<T, K>) + 15) / 16 * 16,
                               from_keys = through + sizeof(float) * parts * K,
                               crossing = from_keys + sizeof(float) * parts * K, bytes = crossing + sizeof(float) * K;
  static_assert(bytes <= 227 * 1024);
};

template <class T, int K, int V>
struct ChannelGradients : RunGradients<T, K, V> {
  using Memory = ChannelMemory<T, K, V>;
  using Base = RunGradients<T, K, V>;
  using Base::call, Base::row, Base::q, Base::k, Base::v, Base::dout, Base::before, Base::behind, Base::scores,
      Base::errors, Base::numbers, Base::scales, Base::count, Base::place, Base::value_blocks, Base::key_columns;
  using typename Base::KeyTile;
  using typename Base::Share;
  using typename Base::Square;
  static constexpr int half = key_columns / 2;  // columns that are computed at a time
  using Half = Strip<half / 16>;

  const KeyTile scaled_q{reinterpret_cast<T*>(memory + Memory::scaled_q)},
      scaled_k{reinterpret_cast<T*>(memory + Memory::scaled_k)};
  ChannelProducts<T, K>& products = *reinterpret_cast<ChannelProducts<T, K>*>(memory + Memory::products);
  // Sums over a part's rows of each channel.
  float (*const through)[K] = reinterpret_cast<float (*)[K]>(memory + Memory::through);
  float (*const from_keys)[K] = reinterpret_cast<float (*)[K]>(memory + Memory::from_keys);
  float* const crossing = reinterpret_cast<float*>(memory + Memory::crossing);
  const int strip = Share::strip();

  using Base::Base;

  __device__ void walk_forwards() {
    State<T, K, V> state;
    state.load(call, call.states.before + this->state_of_run());
    if (call.normalised) numbers.set({}, false);
    const int low = state.row() + this_lane() / 4, high = low + 8;
#pragma unroll 1
    for (int step = 0; step + 1 < count; ++step) {
      const Place at = place(step);
      __syncthreads();
      start_rows<Share::threads_of_block>(k, call.k, at, call.key_size, call.keys_aligned);
      start_rows<Share::threads_of_block>(v, call.v, at, call.value_size, call.values_aligned);
      copies_commit();
      products.set(call, at, false);
      this->keep(state, step);
      copies_wait<0>();
      __syncthreads();
      state.scale(products.whole(low), products.whole(high));
      state.add(
          k, v, [&](auto& a, int p) { scale_rows_of<false, T>(a, products, p, nullptr); },
          call.normalised ? numbers.of_z : nullptr);
    }
    __syncthreads();
    this->keep(state, count - 1);
  }

  __device__ void set_squares() const {
    each_channel_block(scaled_q, scaled_k, q, k, products, [&](Strip<1>& sum, int early) {
      sum.each_pair([&](int r, int c, float x, float y) { this->put_score(row + r, early * part + c, x, y); });
    });
    this->each_error_block([&](Strip<1>& sum, int early) {
      sum.each_pair([&](int r, int c, float x, float y) { this->put_error(row + r, early * part + c, x, y); });
    });
  }
  __device__ void write_dv(const Place& at, float scale) const {
    const int column = Share::group_number() * (V / Share::groups);
    Strip<value_blocks> sum;
    set_zero(sum);
#pragma unroll 2
    for (int c = 0; c < K; c += 16) {
      std::uint32_t a[4];
      load_left(a, scaled_k, row, c);
      scale_channels<T>(a, c, [&](int channel) { return products.behind(strip, channel); });
      add_rows<T>(sum, a, behind.tile, c, column);
    }
    scale_rows(sum, scale, scale);
    for (int p = strip; p < parts; ++p) this->add_block(sum, Across<Square>{scores}, dout, p, column);
    store_rows<T>(sum, call.dv, at, row, column, call.value_size, call.values_aligned);
  }

  // Columns times f(channel).
  template <class F>
  __device__ static void scale_columns(Half& sum, int column, F&& f) {
    sum.each_pair([&](int, int c, float& x, float& y) {
      x *= f(column + c);
      y *= f(column + c + 1);
    });
  }
  // sum += factors of channels times the products of a part's errors with rows.
  template <class Left, class F>
  __device__ void add_part(Half& sum, const Left& left, const KeyTile& right, int p, int column, F&& f) const {
    Half product;
    set_zero(product);
    this->add_block(product, left, right, p, column);
    scale_columns(product, column, f);
    add_strip(sum, product);
  }
  // Pairs of the part where decays are strong: f(row, channel) for such elements, and its products with a tile's to
  // dots.
  template <class F>
  __device__ void add_strong(Half& sum, Half& dots, const KeyTile& tile, int column, float sign, F&& f) const {
    if (!products.any_strong(strip)) return;
#pragma unroll
    for (int b = 0; b < half / 16; ++b)
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int r = row + this_lane() / 4 + e % 4 / 2 * 8,
                  c = column + 16 * b + e / 4 * 8 + this_lane() % 4 * 2 + e % 2;
        if (products.weak[strip][c] != 0) continue;
        const float x = f(r, c);
        sum.d[b][e / 4][e % 4] += x;
        dots.d[b][e / 4][e % 4] += sign * x * to_float(*tile.at(r, c));
      }
  }
  // q_i dq_i to dots. Pairs of positions cancel in the sums for the decays where both factors are rounded as in their
  // product, so scaled rows are multiplied.
  __device__ void write_dq(const Place& at, float scale, int column, Half& dots) const {
    Half sum;
    this->read_before(sum, scale, column);
    for (int p = 0; p < strip; ++p) {
      scale_columns(sum, column, [&](int c) { return products.total[p][c]; });
      add_part(sum, errors, scaled_k, p, column, [&](int c) { return products.of_keys[p][c]; });
    }
    scale_columns(sum, column, [&](int c) { return products.of_queries[strip][c]; });
    add_part(sum, errors, scaled_k, strip, column, [&](int c) { return products.weak[strip][c]; });
    add_channel_dots(dots, sum, scaled_q, row, column, 1);
    sum.each_pair([&](int r, int c, float& x, float& y) {
      x *= products.in(row + r, column + c);
      y *= products.in(row + r, column + c + 1);
    });
    add_strong(sum, dots, q, column, 1, [&](int query, int c) {
      float x = 0;
      for (int key = row; key < query; ++key)
        x += to_float(*errors.at(query, key)) * to_float(*k.at(key, c)) * products.near(query, key, c);
      return x;
    });
    this->add_own(sum, k, column);
    store_rows<T>(sum, call.dq, at, row, column, call.key_size, call.keys_aligned);
  }
  // -k_i dk_i from within the chunk to dots, the rest of it to of_keys.
  __device__ void write_dk(const Place& at, float scale, int column, Half& dots, Half& of_keys) const {
    const auto scale_out = [&](Half& x) {
      x.each_pair([&](int r, int c, float& e, float& f) {
        e *= products.out(row + r, column + c);
        f *= products.out(row + r, column + c + 1);
      });
    };
    Half sum;
    set_zero(sum);
    for (int p = parts - 1; p > strip; --p) {
      scale_columns(sum, column, [&](int c) { return products.total[p][c]; });
      add_part(sum, Across<Square>{errors}, scaled_q, p, column, [&](int c) { return products.of_queries[p][c]; });
    }
    scale_columns(sum, column, [&](int c) { return products.of_keys[strip][c]; });
    add_part(sum, Across<Square>{errors}, scaled_q, strip, column, [&](int c) { return products.weak[strip][c]; });
    add_channel_dots(dots, sum, scaled_k, row, column, -1);
    scale_out(sum);
    add_strong(sum, dots, k, column, -1, [&](int key, int c) {
      float x = 0;
      for (int query = key + 1; query < row + part; ++query)
        x += to_float(*errors.at(query, key)) * to_float(*q.at(query, c)) * products.near(query, key, c);
      return x;
    });
    this->add_own(sum, q, column);
    Half from_behind;
    this->read_behind(from_behind, scale, column);
    scale_columns(from_behind, column, [&](int c) { return products.behind(strip, c); });
    scale_out(from_behind);
    add_channel_dots(of_keys, from_behind, k, row, column, 1);
    add_strip(sum, from_behind);
    store_rows<T>(sum, call.dk, at, row, column, call.key_size, call.keys_aligned);
  }

  // In place of dots their sums from a row to the part's end, and of those of keys the sums before a row.
  __device__ void sum_rows(Half& dots, Half& of_keys, int column) const {
    const int lane = this_lane();
#pragma unroll
    for (int b = 0; b < half / 16; ++b)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float *const late = dots.d[b][h], *const early = of_keys.d[b][h];
          float from[2] = {late[e], late[2 + e]}, to[2] = {early[e], early[2 + e]};
#pragma unroll
          for (int step = 4; step < warp_threads; step *= 2)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
              const float behind_it = __shfl_sync(~0u, from[r], min(lane + step, warp_threads - 1)),
                          before_it = __shfl_sync(~0u, to[r], max(lane - step, 0));
              if (lane + step < warp_threads) from[r] += behind_it;
              if (lane >= step) to[r] += before_it;
            }
          const int c = column + 16 * b + 8 * h + lane % 4 * 2 + e;
          from[0] += __shfl_sync(~0u, from[1], lane % 4);
          if (lane < 4) through[strip][c] = from[0];
          const float over_low = __shfl_sync(~0u, to[0], warp_threads - 4 + lane % 4),
                      low = __shfl_sync(~0u, to[0], max(lane - 4, 0)), high = __shfl_sync(~0u, to[1], max(lane - 4, 0));
          if (lane >= warp_threads - 4) from_keys[strip][c] = over_low + to[1];
          late[e] = from[0];
          late[2 + e] = from[1];
          early[e] = lane < 4 ? 0.0f : low;
          early[2 + e] = over_low + (lane < 4 ? 0.0f : high);
        }
  }
  __device__ void put_crossing(State<T, K, V>& gradient, float scale) const {
    float sum[2] = {};
    gradient.s.each_pair([&](int r, int c, float x, float y) {
      const float2 other = before.tile.pair(gradient.row() + r, c);
      sum[r / 8] += x * other.x + y * other.y;
    });
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      for (int step = 1; step < 4; step *= 2) sum[r] += __shfl_xor_sync(~0u, sum[r], step);
      if (this_lane() % 4 != 0) continue;
      const int c = gradient.row() + this_lane() / 4 + 8 * r;
      float x = scale * sum[r];
      if (call.normalised) x += gradient.z[2 * r] * before.z[c];
      const float over = products.whole(c);
      crossing[c] = over > 0 ? over * x : 0.0f;
    }
  }
  __device__ void write_ddecay(const Place& at, Half& dots, Half& of_keys, int column) const {
    add_strip(dots, of_keys);
    dots.each_pair([&](int r, int c, float& x, float& y) {
      const int t = row + r;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int channel = column + c + e;
        if (t >= at.count || channel >= call.key_size) continue;
        float sum = crossing[channel] + (e == 0 ? x : y);
        for (int p = 0; p < parts; ++p)
          sum += p > strip ? through[p][channel] : p < strip ? from_keys[p][channel] : 0.0f;
        const float left = products.log[t][channel] - (t % part > 0 ? products.log[t - 1][channel] : 0.0f);
        call.ddecay[at.at(call, t) * call.key_size + channel] = left > smallest_decay ? sum : 0.0f;
      }
    });
  }

  __device__ void walk_backwards() {
    State<T, K, V> gradient;
    gradient.load(call, call.gradients.behind + this->state_of_run());
    const int low = gradient.row() + this_lane() / 4, high = low + 8, column = Share::group_number() * key_columns;
#pragma unroll 1
    for (int step = count - 1; step >= 0; --step) {
      const Place at = place(step);
      __syncthreads();
      this->start(step);
      products.set(call, at, true);
      if (call.normalised) numbers.set(RowNumbers::fetch(call, at, true), true);
      const float scale = gradient.stage(behind, call.normalised);
      copies_wait<0>();
      __syncthreads();
      products.template scale<true>(scaled_q, q);
      products.template scale<false>(scaled_k, k);
      __syncthreads();
      set_squares();
      put_crossing(gradient, scales[step]);
      __syncthreads();
      write_dv(at, scale);
      Half dots[2], of_keys[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        set_zero(dots[h]);
        set_zero(of_keys[h]);
        write_dq(at, scales[step], column + h * half, dots[h]);
        write_dk(at, scale, column + h * half, dots[h], of_keys[h]);
        sum_rows(dots[h], of_keys[h], column + h * half);
      }
      __syncthreads();
#pragma unroll
      for (int h = 0; h < 2; ++h) write_ddecay(at, dots[h], of_keys[h], column + h * half);
      if (step == 0) return;
      gradient.scale(products.whole(low), products.whole(high));
      gradient.add(
          q, dout,
          [&](auto& a, int p) { scale_rows_of<true, T>(a, products, p, call.normalised ? numbers.inverse : nullptr); },
          call.normalised ? numbers.of_z : nullptr);
    }
  }
};

template <class T, int K, int V>
__global__ __launch_bounds__(
    Shares<K>::threads_of_block,
    channel_blocks_of_multiprocessor<K, V>) void channel_gradients_kernel(const __grid_constant__ ScanCall call) {
  walk_runs<ChannelGradients<T, K, V>>(call, [&](int unit, int run) { return is_strong(call, unit, run); });
}

}  // namespace
}  // namespace walk

template <class T>
void gradients_of_channel_runs(const ScanCall& call, const Launch& launch) {
  walk::with_channel_sizes(call, [&](auto key, auto value) {
    constexpr int K = decltype(key)::value, V = decltype(value)::value;
    walk::launch_gradients(walk::channel_gradients_kernel<T, K, V>, call, walk::Shares<K>::threads_of_block,
                           walk::ChannelMemory<T, K, V>::bytes, launch);
  });
}

template void gradients_of_channel_runs<__nv_bfloat16>(const ScanCall&, const Launch&);
template void gradients_of_channel_runs<__half>(const ScanCall&, const Launch&);

}  // namespace longstride::kernels::cuda::scanning
