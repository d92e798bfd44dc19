// Products of a tile of 64 queries and 64 keys by mma.sync. A block has four warps; a warp has sixteen of the queries.
//
// The distance term of a warp's 16 x 64 scores needs the products of its queries with 79 neighbouring rows of T, of
// which row y = r - c + 63 belongs to the pair (r, c). They pass through shared memory, written by rows and read along
// diagonals (the skew). In the backward pass dS takes the opposite way. The rows of T for two neighbouring tiles
// overlap by half, so a ring of three pieces of 64 rows holds those of this tile and the next.
#pragma once
#include "kernels/attention/portable/products.cuh"
#include "kernels/distance_attention/gpu/pairs.cuh"

namespace longstride::kernels::cuda::distance {

using portable::block_threads;
using portable::multiply_transposed;
using portable::Tile;

inline constexpr int block_warps = block_threads / warp_threads, warp_rows = tile_rows / block_warps;
inline constexpr int scores = tile_rows / 8;                // blocks of eight columns of an accumulator of scores
inline constexpr int skew_columns = warp_rows + tile_rows;  // 79, rounded up to whole products
inline constexpr int skew_stride = 88;  // 16-bit elements: rows begin on 16 bytes, eight of them in different banks
inline constexpr int skew_elements = warp_rows * skew_stride;

// Row `warp_row() + fragment_row(e)` and column `fragment_column(j, e)` of element e of block j of an accumulator.
__device__ inline int warp_row() { return this_warp() * warp_rows; }
__device__ inline int fragment_row(int e) { return this_lane() / 4 + e / 2 * 8; }
__device__ inline int fragment_column(int j, int e) { return 8 * j + this_lane() % 4 * 2 + e % 2; }

// Loads 64 rows; row(r) is the address of row r, or null for zeros.
template <class T, int Columns, class F>
__device__ inline void load_rows(Tile<T, Columns> tile, int size, const void* any, bool aligned, F&& row) {
  constexpr int chunks = Columns / 8;
#pragma unroll
  for (int i = 0; i < tile_rows * chunks / block_threads; ++i) {
    const int x = i * block_threads + this_thread(), r = x / chunks, column = x % chunks * 8;
    const T* from = row(r);
    const bool valid = from != nullptr && column < size;
    portable::load_chunk(tile.chunk(r, x % chunks), valid ? from + column : static_cast<const T*>(any), valid, column,
                         size, aligned);
  }
}
template <class T, int Columns>
__device__ inline void load_queries(const Call& call, const HeadMatrix& m, const Place& p, std::int32_t t,
                                    Tile<T, Columns> tile, int size) {
  load_rows(tile, size, m.data, call.aligned, [&](int r) -> const T* {
    const std::int32_t entry = p.first_query(t) + r;
    return p.is_query(entry) ? row_of<const T>(m, p.head, p.query(call, entry)) : nullptr;
  });
}
template <class T, int Columns>
__device__ inline void load_keys(const Call& call, const HeadMatrix& m, const Place& p, std::int32_t s,
                                 Tile<T, Columns> tile, int size) {
  load_rows(tile, size, m.data, call.aligned, [&](int r) -> const T* {
    const std::int32_t entry = s * tile_rows + r;
    return entry < p.in.entries ? row_of<const T>(m, p.head, p.in.position(entry)) : nullptr;
  });
}

// The rows of T of a ring of pieces. Piece n holds m = first - 63 + 64 n + (0 .. 63), where `first` is the entry of the
// first row of query tile 0; tiles t and s need the pieces t - s and t - s + 1.
template <class T, int Columns, int Pieces = 3>
struct Window {
  T* data;

  __device__ Tile<T, Columns> piece(std::int32_t n) const {
    constexpr std::int32_t positive = Pieces << 20;  // n is above -2^18
    return {data + (n + positive) % Pieces * (tile_rows * Columns)};
  }
  __device__ void load(const Call& call, const Head& head, std::int32_t first, std::int32_t n) const {
    if (call.table == nullptr) return;
    const T* const table = static_cast<const T*>(call.table) + head.head * call.table_head;
    const std::int32_t own = (call.distances - 1 + head.step - 1) / head.step;
    const std::int32_t begin = first - (tile_rows - 1) + n * tile_rows;
    load_rows(piece(n), call.size, table, call.aligned, [&](int r) -> const T* {
      const std::int32_t m = max(begin + r, 0);  // pairs with m < 0 are masked
      return table + (m >= own ? call.distances - 1 : m * head.step) * call.table_row;
    });
  }
  // Sixteen rows of the pieces of tiles `apart` = t - s: rows 16 n of both together.
  __device__ Tile<T, Columns> rows(std::int32_t apart, int n, int& first) const {
    first = n % 4 * 16;
    return piece(apart + n / 4);
  }
};

// The diagonals of a warp's products with rows of T. Scores (r, c) of a row r, or r + 8, lie in the same four lanes as
// its products y = r - c + 63, so shuffles among them suffice: with R = r + 63 - e, element e of lane q of score block
// j is element R mod 2 of lane (R / 2 - q) mod 4 of product block (R - 2 q) / 8 - j, which is 8 - j or 7 - j.
class Diagonals {
 public:
  __device__ Diagonals() {
    const int r = this_lane() / 4, q = this_lane() % 4;
    swapped_ = r % 2 == 0;  // R is odd for e = 0
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int sum = r + tile_rows - 1 - e, partner = (sum / 2 - q) & 3;  // this lane gives to the one it takes from
      from_[e] = 4 * r + partner;
      later_[e] = sum - 2 * partner >= tile_rows;
    }
  }
  // Adds what block `late` of the products and the one before hold together: the scores of block 8 - late in row r, and
  // of block 9 - late in row r + 8.
  __device__ void add(float (&s)[scores][4], int late, const float (&later)[4], const float (&earlier)[4]) const {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int j = scores - late + e / 2, even = e / 2 * 2, odd = even + 1;
      if (j < 0 || j >= scores) continue;
      const bool second = e % 2 == 0 ? swapped_ : !swapped_;  // it is the second element of its pair
      const float x = later_[e % 2] ? (second ? later[odd] : later[even]) : (second ? earlier[odd] : earlier[even]);
      s[j][e] += __shfl_sync(0xFFFFFFFFu, x, from_[e % 2]);
    }
  }

 private:
  int from_[2];
  bool later_[2], swapped_;
};

// s[u] += the 16 queries from row + 16 u times the rows of T that belong to their pairs. Strips share what they read.
template <class T, int Columns, int Strips, class W>
__device__ inline void add_distance_scores(float (&s)[Strips][scores][4], Tile<T, Columns> position, int row,
                                           const W& window, std::int32_t apart) {
  constexpr int blocks = skew_columns / 16;
  const int lane = this_lane();
  const Diagonals diagonals;
  std::uint32_t left[Strips][Columns / 16][4];
#pragma unroll
  for (int u = 0; u < Strips; ++u)
#pragma unroll
    for (int k = 0; k < Columns / 16; ++k)
      load_matrices(left[u][k], position.chunk(row + 16 * u + lane % 16, 2 * k + lane / 16));
  float before[Strips][4];  // each strip's block of eight products before these
#pragma unroll
  for (int i = 0; i < blocks + Strips - 1; ++i) {
    int first;
    const Tile<T, Columns> rows = window.rows(apart, row / 16 + i, first);
    float d[Strips][2][4] = {};
#pragma unroll
    for (int k = 0; k < Columns / 16; ++k) {
      std::uint32_t right[4];
      load_matrices(right, rows.chunk(first + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
#pragma unroll
      for (int u = 0; u < Strips; ++u) {
        if (i < u || i - u >= blocks) continue;
        multiply_add<T>(d[u][0], left[u][k], right[0], right[1]);
        multiply_add<T>(d[u][1], left[u][k], right[2], right[3]);
      }
    }
#pragma unroll
    for (int u = 0; u < Strips; ++u) {
      if (i < u || i - u >= blocks) continue;
      diagonals.add(s[u], 2 * (i - u), d[u][0], before[u]);
      diagonals.add(s[u], 2 * (i - u) + 1, d[u][1], d[u][0]);
#pragma unroll
      for (int e = 0; e < 4; ++e) before[u][e] = d[u][1][e];
    }
  }
}

// A warp's dS along distances: T (16 rows, y). What no pair reaches is zero from clear() on.
template <class T>
struct SkewedGradient {
  T* data;

  __device__ void clear() const {
    for (int x = this_lane(); x < warp_rows * skew_stride; x += warp_threads) data[x] = from_float<T>(0);
    __syncwarp();
  }
  __device__ void store(const float (&ds)[scores][4]) const {
#pragma unroll
    for (int j = 0; j < scores; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        data[fragment_row(e) * skew_stride + fragment_row(e) - fragment_column(j, e) + tile_rows - 1] =
            from_float<T>(ds[j][e]);
  }
};

// d (16 x Columns) += the skewed dS times the rows of T.
template <int Columns, class T, class W>
__device__ inline void multiply_skewed(float (&d)[Columns / 8][4], const SkewedGradient<T>& ds, const W& window,
                                       std::int32_t apart) {
  const int lane = this_lane();
#pragma unroll
  for (int n = 0; n < skew_columns / 16; ++n) {
    int first;
    const Tile<T, Columns> rows = window.rows(apart, this_warp() + n, first);
    std::uint32_t left[4];
    load_matrices(left, ds.data + lane % 16 * skew_stride + 16 * n + lane / 16 * 8);
#pragma unroll
    for (int j = 0; j < Columns / 16; ++j) {
      std::uint32_t right[4];
      load_matrices_transposed(right, rows.chunk(first + lane % 16, 2 * j + lane / 16));
      multiply_add<T>(d[2 * j], left, right[0], right[1]);
      multiply_add<T>(d[2 * j + 1], left, right[2], right[3]);
    }
  }
}

}  // namespace longstride::kernels::cuda::distance
