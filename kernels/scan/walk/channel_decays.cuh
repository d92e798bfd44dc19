// Products of a chunk's decays where every channel of the keys has one a position, in parts of 16 positions. With L the
// sum of logarithms from a part's start through a row, D_ij = exp(L_i - L_j) within a part. There rows are scaled for
// the products of matrices relative to a reference m of their part and channel,
//   q_i exp(L_i - m),   k_j exp(m - L_j),   m = L of the part's middle,
// so that one exponent is positive, but no larger than the part's whole decay, which must be weak for that. Where it is
// strong, q is relative to the part's start and k to its end, so that none is positive, and pairs of the part are
// summed one by one. A decay of 0 is exp(-128), which is 0.
#pragma once
#include "kernels/scan/walk/channel_logs.cuh"

namespace longstride::kernels::cuda::scanning::walk {

template <class T>
inline constexpr float strongest = std::is_same_v<T, __half> ? -5.0f : -40.0f;

template <class T, int K>
struct ChannelProducts {
  using Share = Shares<K>;
  static constexpr int lists = Share::groups, channels_of_list = K / lists;
  float log[chunk][K + 4];                       // L; rows lie in other banks
  float query_log[parts][K], key_log[parts][K];  // references of rows
  float total[parts][K];                         // the decay over a part
  float of_queries[parts][K];                    // from a part's start to the reference of its queries
  float of_keys[parts][K];                       // from the reference of its keys to its end
  float weak[parts][K];                          // 1, or 0 where it is strong
  std::int32_t strong_count[parts][lists];
  std::uint8_t strong[parts][lists][channels_of_list];

  // A warp a part and a list of channels, of which a lane has two. middle: whether references may be there.
  __device__ void set(const ScanCall& call, const Place& place, bool middle) {
    const int p = Share::strip(), list = Share::group_number(), lane = this_lane(), c = ChannelLogs<K>::channel();
    ChannelLogs<K> logs;
    logs.fetch(call, place);
    float2(&x)[part] = logs.x;
    float2 sum{0, 0};
#pragma unroll
    for (int i = 0; i < part; ++i) {
      sum.x += fmaxf(x[i].x, no_decay_left);
      sum.y += fmaxf(x[i].y, no_decay_left);
      x[i] = sum;
      *reinterpret_cast<float2*>(&log[p * part + i][c]) = sum;
    }
    const bool low_strong = !middle || sum.x < strongest<T>, high_strong = !middle || sum.y < strongest<T>;
    put(p, c, sum.x, x[part / 2 - 1].x, low_strong);
    put(p, c + 1, sum.y, x[part / 2 - 1].y, high_strong);
    if (!middle) return;
    const unsigned low_lanes = __ballot_sync(~0u, low_strong), high_lanes = __ballot_sync(~0u, high_strong),
                   earlier = (1u << lane) - 1;
    if (low_strong) strong[p][list][__popc(low_lanes & earlier)] = static_cast<std::uint8_t>(c);
    if (high_strong)
      strong[p][list][__popc(low_lanes) + __popc(high_lanes & earlier)] = static_cast<std::uint8_t>(c + 1);
    if (lane == 0) strong_count[p][list] = __popc(low_lanes) + __popc(high_lanes);
  }
  __device__ void put(int p, int c, float whole, float middle, bool is_strong) {
    query_log[p][c] = is_strong ? 0.0f : middle;
    key_log[p][c] = is_strong ? whole : middle;
    total[p][c] = expf(whole);
    of_queries[p][c] = is_strong ? 1.0f : expf(middle);
    of_keys[p][c] = is_strong ? 1.0f : expf(whole - middle);
    weak[p][c] = is_strong ? 0.0f : 1.0f;
  }

  // Scales the same rows and channels of a tile; `to` may be `from`.
  template <bool Queries>
  __device__ void scale(Swizzled<T, K> to, Swizzled<T, K> from) const {
    const int p = Share::strip(), c = Share::group_number() * channels_of_list + 2 * this_lane();
    const float* const reference = Queries ? query_log[p] : key_log[p];
    const float2 m{reference[c], reference[c + 1]};
#pragma unroll 4
    for (int i = 0; i < part; ++i) {
      const int at = p * part + i;
      const float2 x = from.pair(at, c), l = *reinterpret_cast<const float2*>(&log[at][c]);
      to.set_pair(at, c, x.x * expf(Queries ? l.x - m.x : m.x - l.x), x.y * expf(Queries ? l.y - m.y : m.y - l.y));
    }
  }

  __device__ float in(int at, int c) const { return expf(log[at][c] - query_log[at / part][c]); }
  __device__ float out(int at, int c) const { return expf(key_log[at / part][c] - log[at][c]); }
  // From the chunk's start to what a part's queries are relative to; from its keys' to the chunk's end.
  __device__ float before(int p, int c) const {
    float x = of_queries[p][c];
#pragma unroll
    for (int i = 0; i < parts - 1; ++i) x *= i < p ? total[i][c] : 1.0f;
    return x;
  }
  __device__ float behind(int p, int c) const {
    float x = of_keys[p][c];
#pragma unroll
    for (int i = 1; i < parts; ++i) x *= i > p ? total[i][c] : 1.0f;
    return x;
  }
  __device__ float whole(int c) const { return total[0][c] * total[1][c] * total[2][c] * total[3][c]; }
  // From an early part's keys to a later part's queries, or within a part.
  __device__ float between(int late, int early, int c) const {
    if (late == early) return weak[late][c];
    float x = of_queries[late][c] * of_keys[early][c];
#pragma unroll
    for (int i = 1; i < parts - 1; ++i) x *= i > early && i < late ? total[i][c] : 1.0f;
    return x;
  }
  __device__ bool any_strong(int p) const {
    int count = 0;
#pragma unroll
    for (int i = 0; i < lists; ++i) count += strong_count[p][i];
    return count > 0;
  }
  // f(channel) for a part's strong channels.
  template <class F>
  __device__ void each_strong(int p, F&& f) const {
    for (int list = 0; list < lists; ++list)
      for (int i = 0; i < strong_count[p][list]; ++i) f(static_cast<int>(strong[p][list][i]));
  }
  // D within a part.
  __device__ float near(int query, int key, int c) const {
    return key <= query ? expf(log[query][c] - log[key][c]) : 0.0f;
  }
};

// A left operand whose columns are the channels from c on, times f(channel).
template <class T, class F>
__device__ __forceinline__ void scale_channels(std::uint32_t (&a)[4], int c, F&& f) {
  const int at = c + this_lane() % 4 * 2;
  scale_fragment<T>(a, 1, 1, {f(at), f(at + 1)}, {f(at + 8), f(at + 9)});
}

// A part of rows as they are, transposed, with the decays from the chunk's start or to its end: rounded once. inverse:
// of denominators, or null.
template <bool Queries, class T, int K>
__device__ __forceinline__ void scale_rows_of(std::uint32_t (&a)[4], const ChannelProducts<T, K>& products, int p,
                                              const float* inverse) {
  const int low = this_warp() * 16 + this_lane() / 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = p * part + i / 2 * 8 + this_lane() % 4 * 2, c = low + i % 2 * 8;
    const float of_part = Queries ? products.before(p, c) : products.behind(p, c);
    float2 factor{of_part * (Queries ? products.in(row, c) : products.out(row, c)),
                  of_part * (Queries ? products.in(row + 1, c) : products.out(row + 1, c))};
    if (inverse != nullptr) {
      factor.x *= inverse[row];
      factor.y *= inverse[row + 1];
    }
    const float2 x = unpack<T>(a[i]);
    a[i] = pack<T>(x.x * factor.x, x.y * factor.y);
  }
}

// Calls see(strip of 16 x 16 scores, part of keys) for the warp's blocks of the scores, D included: of scaled rows, and
// where decays are strong of rows as they are.
template <class T, int K, class F>
__device__ inline void each_channel_block(Swizzled<T, K> scaled_q, Swizzled<T, K> scaled_k, Swizzled<T, K> q,
                                          Swizzled<T, K> k, const ChannelProducts<T, K>& products, F&& see) {
  const int late = Shares<K>::strip(), row = late * part;
  each_block<K>([&](int, int early) {
    Strip<1> sum;
    set_zero(sum);
    const bool plain = late == early && !products.any_strong(late);
#pragma unroll 2
    for (int c = 0; c < K; c += 16) {
      std::uint32_t a[4], x[4];
      load_left(a, scaled_q, row, c);
      if (!plain) scale_channels<T>(a, c, [&](int at) { return products.between(late, early, at); });
      load_right(x, Across<Swizzled<T, K>>{scaled_k}, c, early * part);
      multiply_add<T>(sum.d[0][0], a, x[0], x[1]);
      multiply_add<T>(sum.d[0][1], a, x[2], x[3]);
    }
    if (late == early)
      products.each_strong(late, [&](int c) {
        sum.each_pair([&](int r, int j, float& x, float& y) {
          const int query = row + r, key = row + j;
          const float of_query = to_float(*q.at(query, c));
          if (key <= query) x += of_query * to_float(*k.at(key, c)) * products.near(query, key, c);
          if (key < query) y += of_query * to_float(*k.at(key + 1, c)) * products.near(query, key + 1, c);
        });
      });
    see(sum, early);
  });
}

}  // namespace longstride::kernels::cuda::scanning::walk
