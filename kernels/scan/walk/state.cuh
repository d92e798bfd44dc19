// The state that a block carries along its walk, S or G, in f32 registers: a warp has the rows of 16 key channels. z, a
// normalised scan's last column, is one more column of products whose right operand is a number per position.
#pragma once
#include "kernels/scan/walk/tile.cuh"

namespace longstride::kernels::cuda::scanning::walk {

// The state as products read it. f16 would overflow, so that its elements are divided by a power of two there.
template <class T, int K, int V>
struct Staged {
  Swizzled<T, V> tile;
  float* z;     // K, as they are
  float* room;  // a number per warp
  static constexpr std::size_t bytes = bytes_of_tile<T>(K, V) + sizeof(float) * (K + 32);

  __device__ explicit Staged(char* at)
      : tile{reinterpret_cast<T*>(at)}, z(reinterpret_cast<float*>(at + bytes_of_tile<T>(K, V))), room(z + K) {}
};

template <class T, int K, int V>
struct State {
  static constexpr int warps_of_block = Shares<K>::warps_of_block;
  Strip<V / 16> s;
  float z[4];  // columns 0 of two rows, in every fourth lane

  __device__ static int row() { return this_warp() * 16; }
  __device__ void clear() {
    set_zero(s);
    z[0] = z[1] = z[2] = z[3] = 0;
  }
  // Calls f(number, element) for a matrix of so many rows and columns, whose rows are `stride` apart.
  template <class F>
  __device__ void each_of(int rows_of_matrix, int stride, int columns, F&& f) {
    const int first = row();
    s.each_pair([&](int r, int c, float& x, float& y) {
      if (first + r >= rows_of_matrix) return;
      const int at = (first + r) * stride + c;
      if (c < columns) f(at, x);
      if (c + 1 < columns) f(at + 1, y);
    });
  }
  // The same of a state in memory.
  template <class F>
  __device__ void each(const ScanCall& call, F&& f) {
    const int first = row();
    each_of(call.key_size, call.columns, call.value_size, f);
    if (!call.normalised || this_lane() % 4 != 0) return;
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (const int at = first + this_lane() / 4 + 8 * r; at < call.key_size)
        f(at * call.columns + call.value_size, z[2 * r]);
  }
  __device__ void load(const ScanCall& call, const float* from) {
    clear();
    each(call, [&](int at, float& x) { x = from[at]; });
  }
  __device__ void store(const ScanCall& call, float* to) {
    each(call, [&](int at, float x) { to[at] = x; });
  }
  __device__ void scale(float low, float high) {
    scale_rows(s, low, high);
    z[0] *= low;
    z[2] *= high;
  }

  // Adds the transpose of the rows of `left` times those of `right`; z: times of_z, if given. scale(fragment, part)
  // multiplies a part's rows by their decays on the way.
  template <class F>
  __device__ __forceinline__ void add(Swizzled<T, K> left, Swizzled<T, V> right, F&& scale, const float* of_z) {
#pragma unroll
    for (int p = 0; p < parts; ++p) {
      std::uint32_t a[4];
      load_left(a, Across<Swizzled<T, K>>{left}, row(), p * part);
      scale(a, p);
      add_rows<T>(s, a, right, p * part, 0);
      if (of_z != nullptr) add_column<T>(z, a, of_z + p * part);
    }
  }

  // The power of two that all warps divide by; 1 but in f16. Has a barrier there.
  __device__ float divisor(float* room) const {
    if constexpr (!std::is_same_v<T, __half>) return 1;
    float most = 0;
#pragma unroll
    for (int b = 0; b < V / 16; ++b)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int e = 0; e < 4; ++e) most = fmaxf(most, fabsf(s.d[b][h][e]));
    for (int step = 1; step < warp_threads; step *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    if (this_lane() == 0) room[this_warp()] = most;
    __syncthreads();
    for (int w = 0; w < warps_of_block; ++w) most = fmaxf(most, room[w]);
    int exponent = 0;
    frexpf(most, &exponent);
    return most > 0 ? ldexpf(1.0f, max(exponent, -100)) : 1.0f;
  }
  // Writes the warp's rows for products; the factor that they need. Followed by a barrier.
  __device__ float stage(const Staged<T, K, V>& to, bool normalised) {
    const float scale = divisor(to.room), inverse = 1 / scale;
    s.each_pair([&](int r, int c, float x, float y) { to.tile.set_pair(row() + r, c, x * inverse, y * inverse); });
    if (normalised && this_lane() % 4 == 0) {
      to.z[row() + this_lane() / 4] = z[0];
      to.z[row() + this_lane() / 4 + 8] = z[2];
    }
    return scale;
  }
};

}  // namespace longstride::kernels::cuda::scanning::walk
