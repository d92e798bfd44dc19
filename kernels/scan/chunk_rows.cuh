// A chunk's rows, states and decays from global to shared memory. All called by the whole block, and followed by a
// barrier before what is written is read.
#pragma once
#include <algorithm>
#include <type_traits>

#include "kernels/scan/scan_call.h"
#include "kernels/scan/strip.cuh"

namespace longstride::kernels::cuda::scanning {

extern __shared__ char memory[];

template <class T>
using Keys = Tile<T, slice<T>>;
template <class T>
using Values = Tile<T, widest_group<T>>;  // and states
template <class T>
using Scores = Tile<T, rows>;

// Where a block works.
struct Place {
  int unit, sequence, head, chunk, first, count;  // positions [first, first + count)

  template <class Call>
  __device__ Place(const Call& call, int of_unit, int of_chunk)
      : unit(of_unit),
        sequence(of_unit / call.heads),
        head(of_unit % call.heads),
        chunk(of_chunk),
        first(of_chunk * rows),
        count(min(rows, call.n - of_chunk * rows)) {}
  // Element (row, 0) of a tensor (batch, n, heads).
  template <class Call>
  __device__ std::int64_t at(const Call& call, int row) const {
    return (static_cast<std::int64_t>(sequence) * call.n + first + row) * call.heads + head;
  }
  template <class T>
  __device__ T* rows_of(const HeadMatrix& x) const {
    return static_cast<T*>(x.data) + sequence * x.batch + head * x.head + first * x.row;
  }
  __device__ std::int64_t state(const ScanCall& call) const {
    return (static_cast<std::int64_t>(unit) * call.chunks + chunk) * call.key_size * call.columns;
  }
};

// Columns [first, first + count) of rows, as they are in a tile of `padded` columns; a multiple of 16.
struct Columns {
  int first, count, padded;

  __device__ Columns(int begin, int of_count) : first(begin), count(of_count), padded((of_count + 15) / 16 * 16) {}
};
template <class T>
__device__ inline Columns slice_of(const ScanCall& call, int number) {
  return {number * slice<T>, min(slice<T>, call.key_size - number * slice<T>)};
}
template <class T>
__host__ __device__ inline int groups_of(int columns) {
  return columns <= widest_group<T> ? 1 : (columns + group<T> - 17) / group<T>;
}
template <class T>
__device__ inline Columns group_of(const ScanCall& call, int number) {
  return {number * group<T>, number + 1 < groups_of<T>(call.columns) ? group<T> : call.columns - number * group<T>};
}

// 16 bytes of From as elements of T, times a factor.
template <class From, class T>
__device__ inline void store_scaled(T* to, const uint4& word, float factor) {
  const std::uint32_t x[4] = {word.x, word.y, word.z, word.w};
  if constexpr (sizeof(From) == 2) {
    std::uint32_t y[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = unpack<From>(x[i]);
      y[i] = pack<T>(pair.x * factor, pair.y * factor);
    }
    *reinterpret_cast<uint4*>(to) = make_uint4(y[0], y[1], y[2], y[3]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = from_float<T>(__uint_as_float(x[i]) * factor);
  }
}

// Rows of From to a tile: zeros beyond the chunk's rows and the view's `size` columns. factor: null, or one per row.
template <class From, class T, int C>
__device__ inline void load_rows(Tile<T, C> tile, const HeadMatrix& view, const Place& place, const Columns& columns,
                                 int size, bool aligned, const float* factor) {
  constexpr int word = 16 / static_cast<int>(sizeof(From));
  const From* from = place.rows_of<const From>(view) + columns.first;
  const int there = min(columns.count, size - columns.first);
  if (!aligned) {
#pragma unroll 1
    for (int i = this_thread(); i < rows * columns.padded; i += threads) {
      const int row = i / columns.padded, c = i % columns.padded;
      const float x = row < place.count && c < there ? to_float(from[row * view.row + c]) : 0.0f;
      tile.set(row, c, factor != nullptr ? x * factor[row] : x);
    }
    return;
  }
  const int words = columns.padded / word;
#pragma unroll 2
  for (int i = this_thread(); i < rows * words; i += threads) {
    const int row = i / words, column = i % words * word;
    uint4 x = make_uint4(0, 0, 0, 0);
    if (row < place.count && column < there) x = *reinterpret_cast<const uint4*>(from + row * view.row + column);
    if (std::is_same_v<From, T> && factor == nullptr)
      *reinterpret_cast<uint4*>(tile.at(row, column)) = x;
    else
      store_scaled<From>(tile.at(row, column), x, factor != nullptr ? factor[row] : 1.0f);
  }
}

template <class T>
__device__ inline void load_keys(Keys<T> tile, const ScanCall& call, const HeadMatrix& view, const Place& place,
                                 const Columns& columns, const float* factor = nullptr) {
  load_rows<T>(tile, view, place, columns, call.key_size, call.keys_aligned, factor);
}

// The values, and 1 in z's column. beta: null, or delta's b, and the values are f32.
template <class T>
__device__ inline void load_values(Values<T> tile, const ScanCall& call, const Place& place, const Columns& columns,
                                   const float* beta = nullptr) {
  if (beta != nullptr)
    return load_rows<float>(tile, call.v, place, columns, call.value_size, call.values_aligned, beta);
  load_rows<T>(tile, call.v, place, columns, call.value_size, call.values_aligned, nullptr);
  if (!call.normalised || columns.first + columns.count <= call.value_size) return;
  __syncthreads();
  if (this_thread() < rows)
    tile.set(this_thread(), call.value_size - columns.first, this_thread() < place.count ? 1.0f : 0.0f);
}
// Gradients of the sums before the division: dout divided, and the denominator's in z's column. inverse: room for a
// number per row, needed if the scan is normalised.
template <class T>
__device__ inline void load_gradients(Values<T> tile, const ScanCall& call, const Place& place, const Columns& columns,
                                      float* inverse) {
  if (!call.normalised)
    return load_rows<T>(tile, call.dout, place, columns, call.value_size, call.values_aligned, nullptr);
  const int row = this_thread();
  const std::int64_t at = static_cast<std::int64_t>(place.unit) * call.n + place.first + row;
  if (row < rows) {
    const float below = row < place.count ? call.denominator[at] : 0.0f;
    inverse[row] = below != 0 ? 1 / below : 0.0f;
  }
  __syncthreads();
  load_rows<T>(tile, call.dout, place, columns, call.value_size, call.values_aligned, inverse);
  if (columns.first + columns.count <= call.value_size) return;
  __syncthreads();
  if (row < rows)
    tile.set(row, call.value_size - columns.first, row < place.count ? -call.delta[at] * inverse[row] : 0.0f);
}

// Rows of a slice and columns of a group of a state, zeros beyond. f16 would overflow, so that a state's elements are
// divided by a power of two there; returns it. `room` holds a number per warp.
template <class T>
__device__ inline float load_state(Values<T> tile, const ScanCall& call, const float* state, const Columns& keys,
                                   const Columns& columns, float* room) {
  const int padded = columns.padded;
  const auto at = [&](int i) {
    const int row = i / padded, column = i % padded;
    return row < keys.count && column < columns.count
               ? state[static_cast<std::int64_t>(keys.first + row) * call.columns + columns.first + column]
               : 0.0f;
  };
  float scale = 1;
  if constexpr (std::is_same_v<T, __half>) {
    float most = 0;
    for (int i = this_thread(); i < keys.padded * padded; i += threads) most = fmaxf(most, fabsf(at(i)));
    for (int step = 1; step < warp_threads; step *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    __syncthreads();
    if (this_lane() == 0) room[this_warp()] = most;
    __syncthreads();
    for (int w = 0; w < warps; ++w) most = fmaxf(most, room[w]);
    int exponent = 0;
    frexpf(most, &exponent);
    scale = most > 0 ? ldexpf(1.0f, max(exponent, -100)) : 1.0f;
  }
  const float inverse = 1 / scale;
  if (call.columns % 4 != 0) {
#pragma unroll 2
    for (int i = this_thread(); i < keys.padded * padded; i += threads)
      tile.set(i / padded, i % padded, at(i) * inverse);
    return scale;
  }
#pragma unroll 2
  for (int i = this_thread(); i < keys.padded * padded / 4; i += threads) {
    const int row = i / (padded / 4), column = i % (padded / 4) * 4;
    float4 x{0, 0, 0, 0};
    if (row < keys.count && column < columns.count)
      x = *reinterpret_cast<const float4*>(state + static_cast<std::int64_t>(keys.first + row) * call.columns +
                                           columns.first + column);
    T* const to = tile.at(row, column);
    to[0] = from_float<T>(x.x * inverse);
    to[1] = from_float<T>(x.y * inverse);
    to[2] = from_float<T>(x.z * inverse);
    to[3] = from_float<T>(x.w * inverse);
  }
  return scale;
}

// Elements of the warp's strip to rows of a view.
template <class T, int Blocks>
__device__ inline void store_strip(Strip<Blocks>& strip, const HeadMatrix& view, const Place& place,
                                   const Columns& columns, int size, bool aligned) {
  T* const to = place.rows_of<T>(view) + columns.first;
  const int there = min(columns.count, size - columns.first);
  strip.each_pair([&](int r, int c, float x, float y) {
    const int row = this_warp() * 16 + r;
    if (row >= place.count) return;
    T* const at = to + row * view.row + c;
    if constexpr (sizeof(T) == 2) {
      if (aligned && c < there) {
        *reinterpret_cast<std::uint32_t*>(at) = pack<T>(x, y);
        return;
      }
    }
    if (c < there) at[0] = from_float<T>(x);
    if (c + 1 < there) at[1] = from_float<T>(y);
  });
}

// Delta's b of every row.
__device__ inline void load_beta(float* beta, const ScanCall& call, const Place& place) {
  const int row = this_thread();
  if (row < rows) beta[row] = row < place.count ? call.beta[place.at(call, row)] : 0.0f;
}

// The decay of a row, 0 where a group begins and 1 beyond the chunk.
__device__ inline bool begins(const ScanCall& call, const Place& place, int row) {
  const int position = place.first + row;
  return call.begin != nullptr && row < place.count && position > 0 &&
         call.begin[static_cast<std::int64_t>(place.sequence) * call.n + position] == position;
}
__device__ inline float decay_at(const ScanCall& call, const Place& place, int row, int channel) {
  if (row >= place.count) return 1;
  if (begins(call, place, row)) return 0;
  if (call.decay == nullptr) return 1;
  const std::int64_t at = place.at(call, row);
  return expf(call.decay[call.channels ? at * call.key_size + channel : at]);
}

}  // namespace longstride::kernels::cuda::scanning
