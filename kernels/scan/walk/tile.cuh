// A chunk's tiles in shared memory, their products, and the way from and to global memory.
#pragma once
#include "kernels/gpu/copy.cuh"
#include "kernels/scan/scan_call.h"
#include "kernels/scan/strip.cuh"

namespace longstride::kernels::cuda::scanning {

extern __shared__ char memory[];

namespace walk {

// Positions of a chunk, and of its parts, within which products of decays are not factors of a row and a column.
inline constexpr int chunk = walk_chunk, part = 16, parts = chunk / part;

// The 16-byte words of eight rows lie in different banks: a word's number is combined with the row's. C is a multiple
// of 64.
template <class T, int C>
struct Swizzled {
  using Element = T;
  static constexpr int columns = C;
  T* data;

  // The column's word comes last, where it is often a constant.
  __device__ static int offset(int row, int column) { return (row * C + row % 8 * 8 + column % 8) ^ (column / 8 * 8); }
  __device__ T* at(int row, int column) const { return data + offset(row, column); }
  // Two neighbours, of an even column.
  __device__ float2 pair(int row, int column) const {
    return unpack<T>(*reinterpret_cast<const std::uint32_t*>(at(row, column)));
  }
  __device__ void set_pair(int row, int column, float x, float y) const {
    *reinterpret_cast<std::uint32_t*>(at(row, column)) = pack<T>(x, y);
  }
};
template <class T>
constexpr std::size_t bytes_of_tile(int rows_of_tile, int columns) {
  return sizeof(T) * static_cast<std::size_t>(rows_of_tile * columns);
}

// A block has a warp per 16 key channels, each of which owns these rows of the state. Of a chunk's rows a warp has a
// strip of 16, and with the others of its strip it shares the columns.
template <int K>
struct Shares {
  static constexpr int warps_of_block = K / 16, threads_of_block = warps_of_block * warp_threads,
                       groups = warps_of_block / parts;
  template <int Columns>
  static constexpr int blocks = Columns / groups / 16;

  __device__ static int strip() { return this_warp() % parts; }
  __device__ static int group_number() { return this_warp() / parts; }
};

// Where a walk is.
struct Place {
  int unit, sequence, head, first, count;  // positions [first, first + count)

  __device__ Place(const ScanCall& call, int of_unit, int of_chunk)
      : unit(of_unit),
        sequence(of_unit / call.heads),
        head(of_unit % call.heads),
        first(of_chunk * chunk),
        count(min(chunk, call.n - of_chunk * chunk)) {}
  // Element (row, 0) of a tensor (batch, n, heads), and of one (batch, heads, n).
  __device__ std::int64_t at(const ScanCall& call, int row) const {
    return (static_cast<std::int64_t>(sequence) * call.n + first + row) * call.heads + head;
  }
  __device__ std::int64_t of_unit(const ScanCall& call, int row) const {
    return static_cast<std::int64_t>(unit) * call.n + first + row;
  }
  template <class T>
  __device__ T* rows_of(const HeadMatrix& x) const {
    return static_cast<T*>(x.data) + sequence * x.batch + head * x.head + first * x.row;
  }
};

// Starts copying a chunk's rows; zeros beyond them and beyond `size` columns.
template <int Threads, class T, int C>
__device__ inline void start_rows(Swizzled<T, C> tile, const HeadMatrix& view, const Place& place, int size,
                                  bool aligned) {
  const T* const from = place.rows_of<const T>(view);
  if (!aligned) {
#pragma unroll 1
    for (int i = this_thread(); i < chunk * C; i += Threads) {
      const int row = i / C, c = i % C;
      *tile.at(row, c) = row < place.count && c < size ? from[row * view.row + c] : from_float<T>(0.0f);
    }
    return;
  }
  // A thread's words lie below each other, and in the tile equally far apart.
  constexpr int words = C / 8, rows_apart = Threads / words, count = chunk / rows_apart;
  static_assert(Threads % words == 0 && rows_apart % 8 == 0 && count * rows_apart == chunk);
  const int row = this_thread() / words, c = this_thread() % words * 8;
  const T* at = from + row * view.row + c;
  T* const to = tile.at(row, c);
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const bool there = row + i * rows_apart < place.count && c < size;
    copy_async_16(to + i * rows_apart * C, there ? at : from, there);
    at += rows_apart * view.row;
  }
}

// Starts copying what lies in memory as it does here.
template <int Threads>
__device__ inline void start_bytes(char* to, const char* from, std::size_t bytes) {
  for (int i = this_thread(); i < static_cast<int>(bytes / 16); i += Threads)
    copy_async_16(to + 16 * i, from + 16 * i, true);
}

// A left operand's rows times low and high, and its columns times factors of its part's even columns and the next.
template <class T>
__device__ __forceinline__ void scale_fragment(std::uint32_t (&a)[4], float low, float high, float2 first,
                                               float2 second) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = unpack<T>(a[i]), factor = i < 2 ? first : second;
    const float of_row = i % 2 == 0 ? low : high;
    a[i] = pack<T>(x.x * (of_row * factor.x), x.y * (of_row * factor.y));
  }
}

// strip += a times right's rows [k, +16) of columns [column, +16 Blocks).
template <class T, int Blocks, class Right>
__device__ __forceinline__ void add_rows(Strip<Blocks>& strip, const std::uint32_t (&a)[4], const Right& right, int k,
                                         int column) {
#pragma unroll
  for (int b = 0; b < Blocks; ++b) {
    std::uint32_t x[4];
    load_right(x, right, k, column + 16 * b);
    multiply_add<T>(strip.d[b][0], a, x[0], x[1]);
    multiply_add<T>(strip.d[b][1], a, x[2], x[3]);
  }
}

// strip += left's rows [row, +16) times right's columns [column, +16 Blocks), over 16 Steps.
template <int Steps, int Blocks, class Left, class Right>
__device__ __forceinline__ void multiply(Strip<Blocks>& strip, Left left, int row, Right right, int column) {
#pragma unroll 2
  for (int s = 0; s < Steps; ++s) {
    std::uint32_t a[4];
    load_left(a, left, row, 16 * s);
    add_rows<typename Left::Element>(strip, a, right, 16 * s, column);
  }
}

// d += a times a matrix whose column 0 is 16 numbers, each the sum of two that are rounded: what its last column adds
// to a normalised scan cancels.
template <class T>
__device__ __forceinline__ void add_column(float (&d)[4], const std::uint32_t (&a)[4], const float* numbers) {
  const bool own = this_lane() < 4;
  const int at = this_lane() % 4 * 2;
  std::uint32_t high[2], low[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float x = own ? numbers[at + 8 * h] : 0.0f, y = own ? numbers[at + 8 * h + 1] : 0.0f;
    high[h] = pack<T>(x, y);
    const float2 rounded = unpack<T>(high[h]);
    low[h] = pack<T>(x - rounded.x, y - rounded.y);
  }
  multiply_add<T>(d, a, high[0], high[1]);
  multiply_add<T>(d, a, low[0], low[1]);
}

template <int Blocks>
__device__ __forceinline__ void set_zero(Strip<Blocks>& strip) {
  strip.each_pair([](int, int, float& x, float& y) { x = y = 0; });
}
// Rows times a factor, for the strip's rows lane / 4 and + 8.
template <int Blocks>
__device__ __forceinline__ void scale_rows(Strip<Blocks>& strip, float low, float high) {
  strip.each_pair([&](int r, int, float& x, float& y) {
    const float factor = r < 8 ? low : high;
    x *= factor;
    y *= factor;
  });
}

template <int Blocks>
__device__ __forceinline__ void add_strip(Strip<Blocks>& to, const Strip<Blocks>& from) {
#pragma unroll
  for (int b = 0; b < Blocks; ++b)
#pragma unroll
    for (int e = 0; e < 8; ++e) to.d[b][e / 4][e % 4] += from.d[b][e / 4][e % 4];
}

// f(row in the strip, column, eight neighbours from it on): a quad exchanges its pairs.
template <class T, int Blocks, class F>
__device__ __forceinline__ void each_word(const Strip<Blocks>& strip, float factor, F&& f) {
  static_assert(Blocks % 2 == 0);
#pragma unroll
  for (int b = 0; b < Blocks; b += 2)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      std::uint32_t v[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto& d = strip.d[b + i / 2][i % 2];
        v[i] = pack<T>(d[2 * r] * factor, d[2 * r + 1] * factor);
      }
      transpose_quad(v);
      f(this_lane() / 4 + 8 * r, 16 * b + this_lane() % 4 * 8, make_uint4(v[0], v[1], v[2], v[3]));
    }
}

// Columns [column, +16 Blocks) of the 16 rows from `row` on to a tensor.
template <class T, int Blocks>
__device__ inline void store_rows(Strip<Blocks>& strip, const HeadMatrix& view, const Place& place, int row, int column,
                                  int size, bool aligned) {
  T* const to = place.rows_of<T>(view);
  if constexpr (Blocks % 2 == 0) {
    if (aligned) {
      each_word<T>(strip, 1, [&](int r, int c, const uint4& word) {
        if (row + r < place.count && column + c < size)
          *reinterpret_cast<uint4*>(to + (row + r) * view.row + column + c) = word;
      });
      return;
    }
  }
  strip.each_pair([&](int r, int c, float x, float y) {
    const int at = row + r, there = size - column - c;
    if (at >= place.count || there <= 0) return;
    T* const element = to + at * view.row + column + c;
    if (aligned) {
      *reinterpret_cast<std::uint32_t*>(element) = pack<T>(x, y);
    } else {
      element[0] = from_float<T>(x);
      if (there > 1) element[1] = from_float<T>(y);
    }
  });
}

}  // namespace walk
}  // namespace longstride::kernels::cuda::scanning
