// Q K^T . D of a chunk, whose blocks of 16 x 16 above the diagonal are neither computed nor read.
#pragma once
#include "kernels/scan/walk/rows.cuh"

namespace longstride::kernels::cuda::scanning::walk {

// Calls f(block of a strip, its part of keys) for the warp's visible blocks of scores, of Columns keys.
template <int K, class F>
__device__ __forceinline__ void each_block(F&& f) {
  using Share = Shares<K>;
  constexpr int blocks = Share::template blocks<chunk>;
#pragma unroll
  for (int b = 0; b < blocks; ++b)
    if (const int early = Share::group_number() * blocks + b; early <= Share::strip()) f(b, early);
}
// The products of a strip's rows of two tiles, left and right, for visible blocks.
template <int K, class T, int C>
__device__ __forceinline__ void multiply_visible(Strip<1> (&sums)[Shares<K>::template blocks<chunk>],
                                                 Swizzled<T, C> left, Swizzled<T, C> right) {
  const int row = Shares<K>::strip() * part;
#pragma unroll
  for (auto& sum : sums) set_zero(sum);
#pragma unroll 2
  for (int s = 0; s < C / 16; ++s) {
    std::uint32_t a[4];
    load_left(a, left, row, 16 * s);
    each_block<K>([&](int b, int early) {
      std::uint32_t x[4];
      load_right(x, Across<Swizzled<T, C>>{right}, 16 * s, early * part);
      multiply_add<T>(sums[b].d[0][0], a, x[0], x[1]);
      multiply_add<T>(sums[b].d[0][1], a, x[2], x[3]);
    });
  }
}

// Q K^T of rows that are scaled (channel_logs.cuh).
template <int K, class T>
__device__ inline void set_plain_scores(Swizzled<T, chunk> scores, Swizzled<T, K> q, Swizzled<T, K> k) {
  Strip<1> sums[Shares<K>::template blocks<chunk>];
  multiply_visible<K>(sums, q, k);
  each_block<K>([&](int b, int early) {
    sums[b].each_pair([&](int r, int c, float x, float y) {
      const int query = Shares<K>::strip() * part + r, key = early * part + c;
      scores.set_pair(query, key, key <= query ? x : 0.0f, key < query ? y : 0.0f);
    });
  });
}

template <int K, class T>
__device__ inline void set_scores(Swizzled<T, chunk> scores, Swizzled<T, K> q, Swizzled<T, K> k, const ScanCall& call,
                                  const Products& products, const Near& near, const float* factor_of_rows = nullptr,
                                  const float* factor_of_columns = nullptr) {
  Strip<1> sums[Shares<K>::template blocks<chunk>];
  multiply_visible<K>(sums, q, k);
  each_block<K>([&](int b, int early) {
    each_visible(
        sums[b], products, near, Shares<K>::strip(), early, call.scaled, [&](int query, int key, float x, float y) {
          if (factor_of_rows != nullptr) {  // the scores that denominators have summed
            const float2 summed = unpack<T>(pack<T>(x, y));
            x = summed.x * factor_of_rows[query];
            y = summed.y * factor_of_rows[query];
          }
          const float2 of_key =
              factor_of_columns != nullptr ? float2{factor_of_columns[key], factor_of_columns[key + 1]} : float2{1, 1};
          scores.set_pair(query, key, x * of_key.x, y * of_key.y);
        });
  });
}

}  // namespace longstride::kernels::cuda::scanning::walk
