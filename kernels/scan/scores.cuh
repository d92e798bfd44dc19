// Q K^T . D of a chunk. With a decay per head D is a factor of each element. With one per channel it is inside the
// product: rows scaled within their runs of 16 and, on the way to the tensor cores, by the runs between; and pairs of
// one run by a recurrence.
#pragma once
#include "kernels/scan/decays.cuh"

namespace longstride::kernels::cuda::scanning {

// For a decay per channel: a slice's decays, and each run's products.
template <class T>
struct ChannelDecays {
  float a[rows][slice<T>];
  float total[runs][slice<T>];

  __device__ void load(const ScanCall& call, const Place& place, const Columns& keys) {
    for (int i = this_thread(); i < rows * slice<T>; i += threads) {
      const int row = i / slice<T>, c = i % slice<T>;
      a[row][c] = c < keys.count ? decay_at(call, place, row, keys.first + c) : 1.0f;
    }
    __syncthreads();
    for (int i = this_thread(); i < runs * slice<T>; i += threads) {
      float product = 1;
      for (int j = 0; j < run_rows; ++j) product *= a[i / slice<T> * run_rows + j][i % slice<T>];
      total[i / slice<T>][i % slice<T>] = product;
    }
  }
  // The products of a row's run through it, and behind it.
  __device__ float in(int row, int c) const {
    float product = 1;
#pragma unroll 1
    for (int j = row / run_rows * run_rows; j <= row; ++j) product *= a[j][c];
    return product;
  }
  __device__ float out(int row, int c) const {
    float product = 1;
#pragma unroll 1
    for (int j = row + 1; j < (row / run_rows + 1) * run_rows; ++j) product *= a[j][c];
    return product;
  }
  __device__ float from_start(int row, int c) const {
    float product = in(row, c);
#pragma unroll 1
    for (int b = 0; b < row / run_rows; ++b) product *= total[b][c];
    return product;
  }
  __device__ float to_end(int row, int c) const {
    float product = out(row, c);
#pragma unroll 1
    for (int b = row / run_rows + 1; b < runs; ++b) product *= total[b][c];
    return product;
  }
  // Rows scaled within their runs: from the start, or else to the end. to may be from.
  __device__ void scale(Keys<T> to, Keys<T> from, bool from_run_start) const {
    for (int i = this_thread(); i < runs * slice<T>; i += threads) {
      const int first = i / slice<T> * run_rows, c = i % slice<T>;
      float product = 1;
      for (int j = 0; j < run_rows; ++j) {
        const int row = from_run_start ? first + j : first + run_rows - 1 - j;
        if (from_run_start) product *= a[row][c];
        to.set(row, c, from(row, c) * product);
        if (!from_run_start) product *= a[row][c];
      }
    }
  }
};

// Each warp's own pairs, of its run: near[i][j] += sum over the slice's channels.
template <class T>
__device__ inline void add_near(float (*near)[run_rows], Keys<T> q, Keys<T> k, const ChannelDecays<T>& decays) {
  const int first = this_warp() * run_rows, i = this_lane() % run_rows, half = this_lane() / run_rows;
  float sum[run_rows];
#pragma unroll
  for (int j = 0; j < run_rows; ++j) sum[j] = 0;
  for (int c = half * slice<T> / 2; c < (half + 1) * slice<T> / 2; ++c) {
    float x = q(first + i, c);
#pragma unroll
    for (int j = run_rows - 1; j >= 0; --j) {
      if (j > i) continue;
      sum[j] += x * k(first + j, c);
      x *= decays.a[first + j][c];
    }
  }
#pragma unroll
  for (int j = 0; j < run_rows; ++j) {
    sum[j] += __shfl_xor_sync(~0u, sum[j], run_rows);
    if (half == 0) near[first + i][j] += sum[j];
  }
}

// Elements [begin, begin + 16) of the left operand's columns, scaled.
template <class T>
__device__ inline void scale_left(std::uint32_t (&a)[4], const float* factor) {
  const int first = this_lane() % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = unpack<T>(a[i]);
    const float* f = factor + first + i / 2 * 8;
    a[i] = pack<T>(x.x * f[0], x.y * f[1]);
  }
}

// Adds the pairs of the warp's run with earlier ones: q from its run's start, k to its run's end.
template <class T>
__device__ inline void add_far(Strip<4> (&sum)[2], Keys<T> q, Keys<T> k, const ChannelDecays<T>& decays,
                               float* factor) {
  const int late = this_warp(), row = late * run_rows;
  for (int c = this_lane(); c < slice<T>; c += warp_threads) factor[c] = 1;
  __syncwarp();
#pragma unroll
  for (int early = runs - 1; early >= 0; --early) {
    if (early >= late) continue;
    auto& d = sum[early / 4].d[early % 4];
    if constexpr (std::is_same_v<T, float>) {
      const int i = row + this_lane() / 4, j = early * run_rows + this_lane() % 4 * 2;
      for (int c = 0; c < slice<T>; ++c) {
        const float low = q(i, c) * factor[c], high = q(i + 8, c) * factor[c];
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float x = k(j + 8 * h + e, c);
            d[h][e] += low * x;
            d[h][2 + e] += high * x;
          }
      }
    } else {
#pragma unroll
      for (int c = 0; c < slice<T>; c += 16) {
        std::uint32_t a[4], x[4];
        load_left(a, q, row, c);
        scale_left<T>(a, factor + c);
        load_right(x, Across<Keys<T>>{k}, c, early * run_rows);
        multiply_add<T>(d[0], a, x[0], x[1]);
        multiply_add<T>(d[1], a, x[2], x[3]);
      }
    }
    __syncwarp();
    for (int c = this_lane(); c < slice<T>; c += warp_threads) factor[c] *= decays.total[early][c];
    __syncwarp();
  }
}

// A block's shared memory for a decay per channel; tiles are apart.
template <class T>
struct alignas(16) ChannelRoom {
  ChannelDecays<T> decays;
  float factor[warps][slice<T>];
};

// f(row, column, element) of the first runs of a half of a strip's scores, 64 columns: those of runs that its rows see.
__device__ inline int runs_seen(const ScanCall& call, int half) {
  return min(4, max(0, (call.both ? runs : this_warp() + 1) - 4 * half));
}
template <class F>
__device__ inline void each_score(Strip<4>& sum, const ScanCall& call, int half, F&& f) {
  const int seen = runs_seen(call, half);
  sum.each([&](int r, int c, float& x) {
    if (c / 16 < seen) f(this_warp() * 16 + r, 64 * half + c, x);
  });
}

// Calls f(row, column, score without D) for the warp's 16 rows, a half of the columns after the other.
template <class T, class F>
__device__ inline void each_head_score(const ScanCall& call, const HeadMatrix& queries, const Place& place, Keys<T> q,
                                       Keys<T> k, F&& f) {
#pragma unroll 1
  for (int half = 0; half < 2; ++half) {
    Strip<4> sum;
    sum.clear();
    for (int s = 0; s * slice<T> < call.key_size; ++s) {
      const Columns keys = slice_of<T>(call, s);
      if (half == 0 || call.key_size > slice<T>) {
        __syncthreads();
        load_keys(q, call, queries, place, keys);
        load_keys(k, call, call.k, place, keys);
        __syncthreads();
      }
      add_product(sum, q, this_warp() * 16, Across<Keys<T>>{k}, 64 * half, runs_seen(call, half), 0, keys.padded);
    }
    each_score(sum, call, half, f);
  }
}

// The same with a decay per channel, whose D is in the scores. near: room for 16 numbers per row.
template <class T, class F>
__device__ inline void each_channel_score(const ScanCall& call, const HeadMatrix& queries, const Place& place,
                                          Keys<T> q, Keys<T> k, ChannelRoom<T>& room, float (*near)[run_rows], F&& f) {
  const int strip = this_warp();
  Strip<4> sum[2];
  sum[0].clear();
  sum[1].clear();
  for (int i = this_thread(); i < rows * run_rows; i += threads) near[i / run_rows][i % run_rows] = 0;
  for (int s = 0; s * slice<T> < call.key_size; ++s) {
    const Columns keys = slice_of<T>(call, s);
    __syncthreads();
    load_keys(q, call, queries, place, keys);
    load_keys(k, call, call.k, place, keys);
    // Channels beyond the slice's are multiplied as well.
    const int beyond = slice<T> - keys.padded;
    for (int i = this_thread(); i < rows * beyond; i += threads) {
      q.set(i / beyond, keys.padded + i % beyond, 0);
      k.set(i / beyond, keys.padded + i % beyond, 0);
    }
    room.decays.load(call, place, keys);
    __syncthreads();
    add_near(near, q, k, room.decays);
    __syncthreads();
    room.decays.scale(q, q, true);
    room.decays.scale(k, k, false);
    __syncthreads();
    add_far(sum, q, k, room.decays, room.factor[strip]);
  }
  __syncwarp();
#pragma unroll
  for (int b = 0; b < runs; ++b)
    if (b == strip)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          sum[b / 4].d[b % 4][h][e] =
              near[strip * 16 + this_lane() / 4 + e / 2 * 8][8 * h + this_lane() % 4 * 2 + e % 2];
  each_score(sum[0], call, 0, f);
  each_score(sum[1], call, 1, f);
}

// D of a pair within the chunk; 0 if the query does not see the key.
__device__ inline float seen(const ScanCall& call, const HeadDecays& decays, int query, int key) {
  if (key > query) return call.both ? decays.of(key, query) : 0.0f;
  return decays.of(query, key);
}

}  // namespace longstride::kernels::cuda::scanning
