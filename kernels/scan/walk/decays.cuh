// Products of a chunk's decays where a head has one a position (scan_call.h), in parts of 16 positions; all 1 without
// decays and groups.
#pragma once
#include "kernels/scan/walk/tile.cuh"

namespace longstride::kernels::cuda::scanning::walk {

// Products of rows and of parts.
struct alignas(16) Products {
  float a[chunk];
  float in[chunk], out[chunk];  // from the part's start through a row, and behind it to the part's end
  float total[parts];

  __device__ float before(int p) const {
    float x = 1;
#pragma unroll
    for (int i = 0; i < parts - 1; ++i) x *= i < p ? total[i] : 1.0f;
    return x;
  }
  __device__ float behind(int p) const {
    float x = 1;
#pragma unroll
    for (int i = 1; i < parts; ++i) x *= i > p ? total[i] : 1.0f;
    return x;
  }
  // From the chunk's start through a row, behind it to the chunk's end, and over the chunk: W, E.
  __device__ float from_start(int row) const { return in[row] * before(row / part); }
  __device__ float to_end(int row) const { return out[row] * behind(row / part); }
  __device__ float whole() const { return before(parts - 1) * total[parts - 1]; }
};
// Between the rows of a part: D of row i and an earlier one j at [i][j % 16].
struct Near {
  alignas(8) float d[chunk][part];
};

// A row's decay as it is in memory: what is made of it would wait for it.
struct ReadDecay {
  float logarithm = 0;
  std::int32_t begin = -1;  // where the row's group begins

  __device__ float value(int position) const {
    return begin >= 0 && begin == position && position > 0 ? 0.0f : expf(logarithm);
  }
};
// A warp's part of the work: the rows of a part, a lane each.
__device__ inline ReadDecay read_decay(const ScanCall& call, const Place& place) {
  ReadDecay x;
  const int row = this_warp() * part + this_lane();
  if (this_warp() >= parts || this_lane() >= part || row >= place.count) return x;
  if (call.begin != nullptr)
    x.begin = call.begin[static_cast<std::int64_t>(place.sequence) * call.n + place.first + row];
  if (call.decay != nullptr) x.logarithm = call.decay[place.at(call, row)];
  return x;
}
__device__ inline void set_products(Products& products, Near* near, const ReadDecay& read, const Place& place) {
  if (this_warp() >= parts) return;
  const float a = read.value(place.first + this_warp() * part + this_lane());
  const int lane = this_lane(), row = this_warp() * part + lane % part;
  float in = a, out = 1;
#pragma unroll
  for (int step = 1; step < part; step *= 2) {
    const float other = __shfl_sync(~0u, in, max(lane - step, 0));
    if (lane >= step) in *= other;
  }
  float tail = a;
#pragma unroll
  for (int step = 1; step < part; step *= 2) {
    const float other = __shfl_sync(~0u, tail, min(lane + step, part));
    if (lane + step < part) tail *= other;
  }
  out = __shfl_sync(~0u, tail, min(lane + 1, part));
  if (lane >= part - 1) out = 1;
  float product = 1;
#pragma unroll
  for (int j = part - 1; j >= 0; --j) {
    const float of_j = __shfl_sync(~0u, a, j);
    if (near == nullptr || lane >= part || j > lane) continue;
    near->d[row][j] = product;
    product *= of_j;
  }
  if (lane >= part) return;
  products.a[row] = a;
  products.in[row] = in;
  products.out[row] = out;
  if (lane == part - 1) products.total[this_warp()] = in;
}

// D of a pair of a late part's row and an early part's: `near` if they are one.
__device__ inline float between(const Products& products, int late, int early) {
  float x = 1;
#pragma unroll
  for (int i = 1; i < parts - 1; ++i) x *= i > early && i < late ? products.total[i] : 1.0f;
  return x;
}
template <class F>
__device__ __forceinline__ void each_visible(Strip<1>& scores, const Products& products, const Near& near, int late,
                                             int early, bool scaled, F&& f) {
  const int row = late * part, column = early * part;
  if (early < late) {
    float factor[2] = {1, 1};
    float2 out[2] = {{1, 1}, {1, 1}};
    if (scaled) {
      const float over = between(products, late, early);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        factor[i] = products.in[row + this_lane() / 4 + 8 * i] * over;
        out[i] = *reinterpret_cast<const float2*>(products.out + column + this_lane() % 4 * 2 + 8 * i);
      }
    }
    scores.each_pair([&](int r, int c, float x, float y) {
      const float2& of_key = out[c / 8];
      f(row + r, column + c, x * (factor[r / 8] * of_key.x), y * (factor[r / 8] * of_key.y));
    });
    return;
  }
  scores.each_pair([&](int r, int c, float x, float y) {
    float2 d{1, 1};
    if (scaled) d = *reinterpret_cast<const float2*>(&near.d[row + r][c]);
    f(row + r, column + c, c <= r ? x * d.x : 0.0f, c + 1 <= r ? y * d.y : 0.0f);
  });
}

}  // namespace longstride::kernels::cuda::scanning::walk
