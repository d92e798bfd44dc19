// The inner loops of attention on the CPU: products of tiles that live in the first-level cache, with accumulators in
// vector registers. A BLAS call costs as much as the whole product at these sizes (16 to 64 per side).
//
// Tiles keep their *queries in the lanes*: scores are S[key][query], so that every step of the softmax (maximum,
// exponential, sum, mask) works on whole vectors and nothing is ever reduced across one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/attention/pattern/plan.h"

namespace longstride::kernels::cpu {

#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64, registers = 32;
#elif defined(__AVX__)
inline constexpr int vector_bytes = 32, registers = 16;
#else
inline constexpr int vector_bytes = 16, registers = 16;
#endif

template <class T>
struct VectorOf {
  using type __attribute__((vector_size(vector_bytes))) = T;
};
template <class T>
using Vector = typename VectorOf<T>::type;

template <class T>
inline constexpr std::int64_t lanes_of = vector_bytes / static_cast<std::int64_t>(sizeof(T));

// `x` rounded up to whole vectors.
template <class T>
constexpr std::int64_t padded(std::int64_t x) {
  return (x + lanes_of<T> - 1) / lanes_of<T> * lanes_of<T>;
}

// A matrix addressed by two strides: element (r, k) is data[r * row + k * depth].
template <class T>
struct Left {
  const T* data;
  std::int64_t row, depth;
};

template <class T>
inline Vector<T> load(const T* from) {
  Vector<T> v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}
template <class T>
inline void store(T* to, Vector<T> v) {
  std::memcpy(to, &v, sizeof(v));
}

// `sum` keeps the previous C as part of the sum.
enum class Into { zero, sum };

// C(rows, lanes) += A(rows, depth) B(depth, lanes), for `height` rows and `vectors` vectors of lanes. Element by
// element, the terms are added in the order of depth, whatever the blocking.
template <Into into, class T, int height, int vectors>
inline void multiply_block(const Left<T>& a, const T* __restrict b, std::int64_t ldb, T* __restrict c, std::int64_t ldc,
                           std::int64_t depth) {
  constexpr std::int64_t w = lanes_of<T>;
  Vector<T> sum[height][vectors] = {};
  if constexpr (into == Into::sum)
    for (int r = 0; r < height; ++r)
      for (int x = 0; x < vectors; ++x) sum[r][x] = load(c + r * ldc + x * w);
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector<T> right[vectors];
    for (int x = 0; x < vectors; ++x) right[x] = load(b + k * ldb + x * w);
    for (int r = 0; r < height; ++r) {
      const T left = a.data[r * a.row + k * a.depth];
      for (int x = 0; x < vectors; ++x) sum[r][x] += left * right[x];
    }
  }
  for (int r = 0; r < height; ++r)
    for (int x = 0; x < vectors; ++x) store(c + r * ldc + x * w, sum[r][x]);
}

// All rows of one column of blocks, with enough accumulators to hide the latency of a fused multiply-add.
template <Into into, class T, int vectors>
inline void multiply_column(Left<T> a, const T* b, std::int64_t ldb, T* c, std::int64_t ldc, std::int64_t rows,
                            std::int64_t depth) {
  constexpr int height = registers == 32 ? (vectors > 2 ? 6 : 8) : (vectors > 2 ? 2 : 4);
  const auto block = [&](std::int64_t r) { return Left<T>{a.data + r * a.row, a.row, a.depth}; };
  std::int64_t r = 0;
  for (; r + height <= rows; r += height)
    multiply_block<into, T, height, vectors>(block(r), b, ldb, c + r * ldc, ldc, depth);
  for (; r + 2 <= rows; r += 2) multiply_block<into, T, 2, vectors>(block(r), b, ldb, c + r * ldc, ldc, depth);
  for (; r < rows; ++r) multiply_block<into, T, 1, vectors>(block(r), b, ldb, c + r * ldc, ldc, depth);
}

// C(rows, lanes) = A(rows, depth) B(depth, lanes), added to C or not; lanes is a multiple of lanes_of<T>.
template <Into into, class T>
inline void multiply(const Left<T>& a, const T* b, std::int64_t ldb, T* c, std::int64_t ldc, std::int64_t rows,
                     std::int64_t lanes, std::int64_t depth) {
  constexpr std::int64_t w = lanes_of<T>;
  std::int64_t x = 0;
  for (; x + 4 * w <= lanes; x += 4 * w) multiply_column<into, T, 4>(a, b + x, ldb, c + x, ldc, rows, depth);
  const std::int64_t rest = (lanes - x) / w;
  if (rest == 3) multiply_column<into, T, 3>(a, b + x, ldb, c + x, ldc, rows, depth);
  if (rest == 2) multiply_column<into, T, 2>(a, b + x, ldb, c + x, ldc, rows, depth);
  if (rest == 1) multiply_column<into, T, 1>(a, b + x, ldb, c + x, ldc, rows, depth);
}

template <class T>
inline T dot(const T* a, const T* b, std::int64_t size) {
  constexpr std::int64_t w = lanes_of<T>;
  Vector<T> partial{};
  std::int64_t d = 0;
  for (; d + w <= size; d += w) partial += load(a + d) * load(b + d);
  T sum = 0;
  for (; d < size; ++d) sum += a[d] * b[d];
  for (std::int64_t i = 0; i < w; ++i) sum += partial[i];
  return sum;
}

// The rows of one (sequence, head) of q, k, v or their gradients.
template <class T>
struct HeadRows {
  T* data;
  std::int64_t stride;  // between positions, in elements
  std::int64_t size;    // elements of a row

  T* at(std::int64_t position) const { return data + position * stride; }
};

// Calls f(row, position) for the entries [begin, begin + count) of a row set.
template <class F>
inline void each_entry(const RowSet& set, std::int32_t begin, std::int32_t count, F&& f) {
  std::int32_t position = set.position(begin), in_run = begin % set.run;
  for (std::int32_t r = 0; r < count; ++r) {
    f(r, position);
    ++position;
    if (++in_run == set.run) {
      in_run = 0;
      position += set.period - set.run;
    }
  }
}

// tile(r, 0 .. size) = factor * row of entry begin + r, each row padded with zeros to `ld`, and whole rows of zeros
// up to row `padded_rows`.
template <class T, class U>
inline void gather(const HeadRows<U>& rows, const RowSet& set, std::int32_t begin, std::int32_t count, T factor,
                   T* __restrict tile, std::int64_t ld, std::int64_t padded_rows = 0) {
  each_entry(set, begin, count, [&](std::int32_t r, std::int32_t position) {
    const T* __restrict from = rows.at(position);
    T* __restrict to = tile + r * ld;
    for (std::int64_t d = 0; d < rows.size; ++d) to[d] = factor * from[d];
    for (std::int64_t d = rows.size; d < ld; ++d) to[d] = 0;
  });
  for (std::int64_t x = count * ld; x < padded_rows * ld; ++x) tile[x] = 0;
}

// The inverse: row of entry begin + r = tile(r, 0 .. size).
template <class T>
inline void scatter(const T* __restrict tile, std::int64_t ld, const RowSet& set, std::int32_t begin,
                    std::int32_t count, const HeadRows<T>& rows) {
  each_entry(set, begin, count, [&](std::int32_t r, std::int32_t position) {
    std::memcpy(rows.at(position), tile + r * ld, static_cast<std::size_t>(rows.size) * sizeof(T));
  });
}

// The lower or upper halves of a and b, interleaved.
template <int begin, class V, int... i>
inline V interleave(V a, V b, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, b, (begin + i / 2 + (i % 2) * static_cast<int>(sizeof...(i)))...);
}

// Transposes a square of lanes_of<T> rows by log2(lanes_of<T>) perfect shuffles.
template <class T>
inline void transpose_square(const T* in, std::int64_t ldi, T* out, std::int64_t ldo) {
  constexpr int w = static_cast<int>(lanes_of<T>);
  constexpr auto lanes = std::make_integer_sequence<int, w>{};
  Vector<T> now[w], next[w];
  for (int r = 0; r < w; ++r) now[r] = load(in + r * ldi);
  for (int half = 1; half < w; half *= 2) {
    for (int r = 0; r < w / 2; ++r) {
      next[2 * r] = interleave<0>(now[r], now[r + w / 2], lanes);
      next[2 * r + 1] = interleave<w / 2>(now[r], now[r + w / 2], lanes);
    }
    for (int r = 0; r < w; ++r) now[r] = next[r];
  }
  for (int r = 0; r < w; ++r) store(out + r * ldo, now[r]);
}

// out(columns, ldo) = in(rows, ldi) transposed. Lanes [rows, padded(rows)) of out are undefined, as are rows
// [columns, padded(columns)); both tiles have room for whole squares.
template <class T>
inline void transpose(const T* in, std::int64_t ldi, std::int64_t rows, std::int64_t columns, T* out,
                      std::int64_t ldo) {
  constexpr std::int64_t w = lanes_of<T>;
  for (std::int64_t c = 0; c < columns; c += w)
    for (std::int64_t r = 0; r < rows; r += w) transpose_square(in + r * ldi + c, ldi, out + c * ldo + r, ldo);
}

}  // namespace longstride::kernels::cpu
