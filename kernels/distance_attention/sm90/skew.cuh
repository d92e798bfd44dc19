// The skew: between scores by key and products by distance. A warpgroup's products of 64 queries with the 128 rows of T
// of a window, two accumulators of 64 columns, hold the pair (r, c) of a query and a key in row r, column y = r - c +
// 63; the accumulator of scores holds it in column c. A warp's 16 queries have a part of shared memory for the way in
// either direction. Windows move by 64 rows of T per step: the products with the nearer 64 rows are those with the
// farther 64 rows of the next window.
//
// Scores: the part has products with 128 rows of T. That of query r and row y of a window is in column (127 + r - y -
// 64 turn) mod 128 of the query, turn = 0, 1, 0, ...: so next time the nearer rows are where the farther ones are
// sought, and a score of key c is in a column that is the same for all queries of the warp, (64 - 16 warp + c - 64
// turn) mod 128. In registers it would be in another place in every warp, so code would be there four times.
//
// Gradients of scores: between get() and put() no query needs the columns [16 + 64 turn, 64 + 64 turn), which have held
// products with farther rows. A band of 80 columns, y - 16 warp, 16 bits each, passes there.
//
// Banks: eight columns of 16 queries follow one another, then the next eight columns. So all columns of a query have
// eight banks, or four where they have 16 bits. A warp puts elements of eight queries, every other column from one on
// that depends on the query, and reads pairs of columns of four of them.
#pragma once
#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/lane.cuh"
#include "kernels/gpu/shared.cuh"

namespace longstride::kernels::cuda::distance::sm90 {

class Skew {
 public:
  static constexpr int queries = 16, columns = 128, warp_bytes = queries * columns * 4;

 private:
  static constexpr int column_bytes = queries * 4, band_bytes = queries * 16;  // per column, and per eight of the band

  // The order of queries gives other banks to queries 0, 2, 4, 6, to 1, 3, 5, 7, to 0 to 3 and to 4 to 7 of eight.
  __device__ static constexpr int place(int query, int column) {
    return column / 8 * (8 * column_bytes) + (query ^ query / 4 % 2) * 32 + column % 8 * 4;
  }

  // True if the lanes of every access have banks of their own: a put's, half of a get's, which reads two words per
  // lane, and a half word's of the band.
  __device__ static constexpr bool has_no_conflicts() {
    for (int first = 0; first < 8; ++first) {
      std::uint32_t put = 0, get[2] = {}, band = 0;
      for (int lane = 0; lane < warp_threads; ++lane) {
        const int query = lane / 4, column = lane % 4 * 2, along = 8 + first + query - column;
        put |= 1u << place(query, along) / 4 % 32;
        get[lane / 16] |= 3u << place(query, column) / 4 % 32;
        band |= 1u << (along / 8 * band_bytes + query * 16 + along % 8 * 2) / 4 % 32;
      }
      if (~put != 0 || ~get[0] != 0 || ~get[1] != 0 || ~band != 0) return false;
    }
    return true;
  }

 public:
  // `memory`: the warp's, `warp`: its number in the warpgroup.
  __device__ Skew(char* memory, int warp)
      : memory_(memory), warp_(warp), row_(this_lane() / 4), column_(this_lane() % 4 * 2) {
    static_assert(has_no_conflicts());
#pragma unroll
    for (int e = 0; e < 2; ++e) wrap_[e] = column_ + e < row_ ? warp_bytes : 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      is_far_[k] = opaque(k < warp ? ~0u : 0u);
      is_last_[k] = opaque(k == warp ? ~0u : 0u);
      is_last_diagonal_[k] = opaque(k == warp ? before_row() : 0u);
    }
  }

  // The first products, with the farther rows of the first window, are put as if they were of one before it.
  __device__ void begin() { turn_ = 0; }
  // Moves the window and puts its products with its nearer 64 rows.
  __device__ __forceinline__ void put(const float (&near)[32]) {
    turn_ ^= 1;
    __syncwarp();                 // all lanes have read what this overwrites
    const int wraps = turn_ - 1;  // all bits where columns may exceed 127, or none
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      char* const to = memory_ + place(row_, 127 + row_ - column_ - e) - turn_ * (64 * column_bytes);
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const int wrap = j == h ? wrap_[e] & wraps : j < h ? warp_bytes & wraps : 0;
          *reinterpret_cast<float*>(to - wrap + h * place(8, 8) - place(0, 8 * j)) = near[element_at(j, h, e)];
        }
    }
    __syncwarp();
  }
  // s = the window's scores.
  __device__ __forceinline__ void get(float (&s)[32]) const {
    const char* const first =
        memory_ + place(row_, column_) + (64 - 16 * warp_) * column_bytes - turn_ * (64 * column_bytes);
#pragma unroll
    for (int group = 0; group < 4; ++group) {  // 16 keys each; those before `warp` only read products with farther rows
      const char* const from = first + (turn_ != 0 && group < warp_ ? warp_bytes : 0);
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int j = 2 * group; j < 2 * group + 2; ++j) {
          const float2 pair = *reinterpret_cast<const float2*>(from + place(8 * h, 8 * j));
          s[element_at(j, h, 0)] = pair.x;
          s[element_at(j, h, 1)] = pair.y;
        }
    }
  }

  // The reverse for gradients of scores, which are left operands of 16-bit elements. `near` has what the window before
  // gave to its nearer 64 rows and gets what this one gives to its own, where pairs with keys after this tile's have
  // anything; far = the farther rows' gradients, to which both windows give.
  __device__ __forceinline__ void scatter(const std::uint32_t (&ds)[4][4], std::uint32_t (&near)[4][4],
                                          std::uint32_t (&far)[4][4]) const {
    char* const band = memory_ + place(0, 16) + turn_ * (64 * column_bytes);
    put_band(ds, band);
    take_band(near, far, band + this_lane() % 16 * 16 + this_lane() / 16 * band_bytes);
  }
  // Clears what scatter() has left undefined.
  __device__ void end(std::uint32_t (&near)[4][4]) const {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      near[k][0] &= ~(is_far_[k] | is_last_diagonal_[k]);
      near[k][1] &= ~(is_far_[k] | is_last_[k]);
      near[k][2] &= ~is_far_[k];
      near[k][3] &= ~(is_far_[k] | is_last_diagonal_[k]);
    }
  }

 private:
  __device__ __forceinline__ void put_band(const std::uint32_t (&ds)[4][4], char* band) const {
    __syncwarp();  // all lanes have read the scores
    const auto to = [&](int e) {
      const int y = 63 + row_ - column_ - e;
      return band + y / 8 * band_bytes + row_ * 16 + y % 8 * 2;
    };
    char *const even = to(0), *const odd = to(1);
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int at = h * (band_bytes + 8 * 16) - j * band_bytes;
        store_halves(even + at, odd + at, ds[j / 2][j % 2 * 2 + h]);
      }
    __syncwarp();
  }
  // Block b of 16 columns of the band of warp w is block w + b of the window's eight. In the band's last block the
  // columns from the row on belong to keys before the tile's; in its first one those before the row belong to keys
  // after it.
  __device__ __forceinline__ void take_band(std::uint32_t (&near)[4][4], std::uint32_t (&far)[4][4],
                                            const char* from) const {
    std::uint32_t last[4];
    load_matrices(last, from + 4 * 2 * band_bytes);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const auto merged = [&](int i, std::uint32_t mask) { return (last[i] & mask) | (near[k][i] & ~mask); };
      const std::uint32_t with_last[4] = {merged(0, is_last_diagonal_[k]), merged(1, is_last_[k]), near[k][2],
                                          merged(3, is_last_diagonal_[k])};
      load_matrices(near[k], from + ((k - warp_) & 3) * (2 * band_bytes));
#pragma unroll
      for (int i = 0; i < 4; ++i)
        far[k][i] = k < 3 ? (near[k][i] & is_far_[k]) | (with_last[i] & ~is_far_[k]) : with_last[i];
    }
  }
  // Which elements of words 0 and 3 of a block, those on its diagonal, are in a column before their row.
  __device__ std::uint32_t before_row() const {
    return (wrap_[0] != 0 ? 0x0000FFFFu : 0u) | (wrap_[1] != 0 ? 0xFFFF0000u : 0u);
  }
  // A mask that the compiler does not know for one: it would select by branches and copy all registers.
  __device__ static std::uint32_t opaque(std::uint32_t mask) {
    asm volatile("" : "+r"(mask));
    return mask;
  }

  char* const memory_;
  const int warp_, row_, column_;
  int wrap_[2];                                                 // bytes
  std::uint32_t is_far_[4], is_last_[4], is_last_diagonal_[4];  // operands: the band's blocks 1 to 3, or block 4
  int turn_ = 0;
};

}  // namespace longstride::kernels::cuda::distance::sm90
