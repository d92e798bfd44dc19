// The delta rule's part of a walk. With N the strictly earlier part of K K^T . D and b the diagonal of beta
//   Y = (1 + N b)^-1 (V - W K S),   S behind the chunk: decay S + (E K)^T b Y
//   b dU = X^T b ((Q K^T . D)^T dO + E K G),   X = (1 + N b)^-1,   G before: decay G + (W Q)^T dO - (W K)^T b dU
// X of every chunk is computed before the walks and read by all of them.
#pragma once
#include "kernels/scan/walk/scores.cuh"

namespace longstride::kernels::cuda::scanning::walk {

template <class T>
using Square = Swizzled<T, chunk>;
template <class T>
inline constexpr std::size_t bytes_of_square = bytes_of_tile<T>(chunk, chunk);

// Where X of a chunk is.
template <class T>
__device__ inline T* inverse_of(const ScanCall& call, int unit, int of_chunk) {
  const std::int64_t chunks = (call.n + chunk - 1) / chunk;
  return static_cast<T*>(call.inverses) + (unit * chunks + of_chunk) * chunk * chunk;
}
__device__ inline void set_beta(float* beta, const ScanCall& call, const Place& place) {
  if (this_thread() < chunk)
    beta[this_thread()] = this_thread() < place.count ? call.beta[place.at(call, this_thread())] : 0.0f;
}

template <class T, int K, int V>
struct DeltaStep {
  using Share = Shares<K>;
  static constexpr int blocks = Share::template blocks<V>;
  using Rows = Strip<blocks>;

  __device__ static int row() { return Share::strip() * part; }
  __device__ static int column() { return Share::group_number() * (V / Share::groups); }
  __device__ static void put(const Swizzled<T, V>& to, Rows& rows) {
    rows.each_pair([&](int r, int c, float x, float y) { to.set_pair(row() + r, column() + c, x, y); });
  }
  // v - W K S in place of v.
  __device__ static void subtract_read(const Swizzled<T, V>& v, const Swizzled<T, K>& k, const Staged<T, K, V>& staged,
                                       float scale, bool scaled, const Products& products) {
    const int low = row() + this_lane() / 4;
    Rows rows;
    set_zero(rows);
    multiply<K / 16>(rows, k, row(), staged.tile, column());
    scale_rows(rows, scale * (scaled ? products.from_start(low) : 1.0f),
               scale * (scaled ? products.from_start(low + 8) : 1.0f));
    rows.each_pair([&](int r, int c, float& x, float& y) {
      const float2 value = v.pair(row() + r, column() + c);
      x = value.x - x;
      y = value.y - y;
    });
    put(v, rows);
  }
  // The strip's rows of X times other rows.
  __device__ static void solve(Rows& rows, const Square<T>& inverse, const Swizzled<T, V>& right) {
    set_zero(rows);
    for (int p = 0; p <= Share::strip(); ++p) {
      std::uint32_t a[4];
      load_left(a, inverse, row(), p * part);
      add_rows<T>(rows, a, right, p * part, column());
    }
  }
  // The same of X^T.
  __device__ static void solve_back(Rows& rows, const Square<T>& inverse, const Swizzled<T, V>& right) {
    set_zero(rows);
    add_transposed(rows, inverse, right);
  }
  // Rows of a lower square's transpose times others.
  __device__ static void add_transposed(Rows& rows, const Square<T>& square, const Swizzled<T, V>& right) {
    for (int p = Share::strip(); p < parts; ++p) {
      std::uint32_t a[4];
      load_left(a, Across<Square<T>>{square}, row(), p * part);
      add_rows<T>(rows, a, right, p * part, column());
    }
  }
  // (Q K^T . D)^T dO + E K G.
  __device__ static void set_gradients(Rows& rows, const Square<T>& scores, const Swizzled<T, K>& k,
                                       const Swizzled<T, V>& dout, const Staged<T, K, V>& staged, float scale,
                                       bool scaled, const Products& products) {
    const int low = row() + this_lane() / 4;
    set_zero(rows);
    multiply<K / 16>(rows, k, row(), staged.tile, column());
    scale_rows(rows, scale * (scaled ? products.to_end(low) : 1.0f),
               scale * (scaled ? products.to_end(low + 8) : 1.0f));
    add_transposed(rows, scores, dout);
  }

  // S behind the chunk, of b Y.
  __device__ static void advance(State<T, K, V>& state, const Swizzled<T, K>& k, const Swizzled<T, V>& y,
                                 const float* beta, bool scaled, const Products& products) {
    if (scaled) {
      const float over = products.whole();
      state.scale(over, over);
    }
    state.add(
        k, y,
        [&](auto& a, int p) {
          const int at = p * part + this_lane() % 4 * 2;
          const auto factor = [&](int r) { return scaled ? beta[r] * products.to_end(r) : beta[r]; };
          scale_fragment<T>(a, 1, 1, {factor(at), factor(at + 1)}, {factor(at + 8), factor(at + 9)});
        },
        nullptr);
  }
  // G before the chunk; dv: b dU.
  __device__ static void step_back(State<T, K, V>& gradient, const Swizzled<T, K>& q, const Swizzled<T, K>& k,
                                   const Swizzled<T, V>& dout, const Swizzled<T, V>& dv, bool scaled,
                                   const Products& products) {
    if (scaled) {
      const float over = products.whole();
      gradient.scale(over, over);
    }
    const auto by = [&](float sign) {
      return [&, sign](auto& a, int p) {
        const int at = p * part + this_lane() % 4 * 2;
        const auto factor = [&](int r) { return scaled ? sign * products.from_start(r) : sign; };
        scale_fragment<T>(a, 1, 1, {factor(at), factor(at + 1)}, {factor(at + 8), factor(at + 9)});
      };
    };
    gradient.add(q, dout, by(1), nullptr);
    gradient.add(k, dv, by(-1), nullptr);
  }
};

}  // namespace longstride::kernels::cuda::scanning::walk
