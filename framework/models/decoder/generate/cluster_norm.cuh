// The norm of the residual streams of a cluster's sequences by all warps of a block, one element per thread.
#pragma once
#include "framework/models/decoder/generate/cluster.cuh"
#include "framework/models/decoder/generate/cluster_memory.cuh"
#include "kernels/gpu/global.cuh"

namespace longstride::generation {

// A warp's partial sums over a sequence: the elements' distances from the first element, and their squares. One pass
// gives both; sums of the values themselves would lose the variance next to the square of the mean.
struct alignas(8) NormPart {
  float sum, square;
};

// Sums of several values over lanes that differ in the bits of `span` - 1. Every step halves the values of a lane until
// one is left, so `values` values take values - 1 shuffles to get there instead of one each per step. This lane gets
// the sum of value lane % span / (span / values). Both are powers of two, values <= span <= 32.
template <int values, int span>
__device__ __forceinline__ float sum_of_lanes(float (&x)[values]) {
  int offset = span / 2;
#pragma unroll
  for (int half = values / 2; half > 0; half /= 2, offset /= 2) keep_half(x, half, offset);
#pragma unroll
  for (int left = span / values / 2; left > 0; left /= 2) x[0] += __shfl_xor_sync(0xFFFFFFFFu, x[0], left);
  return x[0];
}

// A thread's element of a norm.
struct NormElement {
  float gain, bias;
};

// This thread's element of every sequence's stream.
class Normaliser {
 public:
  __device__ Normaliser(const NormElement& norm, int width)
      : width_(width), mine_(static_cast<int>(threadIdx.x)), real_(mine_ < width), norm_(norm) {
    if (!real_) mine_ = 0;
  }

  // Loads at once: a load issued half a layer ahead has arrived by the time it is needed.
  static __device__ NormElement element_of(const Norm& norm, const char* weights, int width) {
    const int mine = min(static_cast<int>(threadIdx.x), width - 1) * 4;
    return {load_now(weights + norm.gain + mine), load_now(weights + norm.bias + mine)};
  }

  // stream (count, width) += delta unless it is null; every warp writes its partial sums to `parts`, (count, warps).
  template <class T>
  __device__ void add(const float* stream, const T* delta, int count, NormPart* parts) {
    if (count == 1) return add_to<1>(stream, delta, count, parts);
    if (count == 2) return add_to<2>(stream, delta, count, parts);
    add_to<4>(stream, delta, count, parts);
  }

  // After a barrier of the warps: stores the streams, and normed (count, pitch) = norm(stream) in the order in which
  // products read vectors: the second and the third of every four words are swapped (multiply_block).
  template <class T>
  __device__ void finish(float* stream, float share_of_width, const NormPart* parts, int count, T* normed,
                         int pitch) const {
    const float2 mine = count > 2 ? whole<2>(share_of_width, parts, count) : whole<1>(share_of_width, parts, count);
    const int e = mine_ % 8, at = mine_ - e + e / 2 % 2 * 4 + e / 4 * 2 + e % 2;
#pragma unroll
    for (int s = 0; s < most_cluster_sequences; ++s) {
      if (s >= count) break;
      const int lane = s % 2 * 16 + s / 2 * 8;
      const float offset = __shfl_sync(0xFFFFFFFFu, mine.x, lane), rstd = __shfl_sync(0xFFFFFFFFu, mine.y, lane);
      if (!real_) continue;
      stream[s * width_ + mine_] = x_[s];
      normed[s * pitch + at] = from_float<T>((x_[s] - (origin_[s] + offset)) * rstd * norm_.gain + norm_.bias);
    }
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }

  // n >= count; the sums of the sequences beyond `count` are zeros and are not stored.
  template <int n, class T>
  __device__ __forceinline__ void add_to(const float* stream, const T* delta, int count, NormPart* parts) {
    float x[2 * n] = {};
#pragma unroll
    for (int s = 0; s < n; ++s) {
      if (s >= count) break;
      x_[s] = stream[s * width_ + mine_];
      origin_[s] = stream[s * width_];
      if (delta != nullptr) {
        x_[s] += to_float(delta[s * width_ + mine_]);
        origin_[s] += to_float(delta[s * width_]);
      }
      const float distance = real_ ? x_[s] - origin_[s] : 0.0f;
      x[2 * s] = distance, x[2 * s + 1] = distance * distance;
    }
    const float sum = sum_of_lanes<2 * n, 32>(x);
    constexpr int lanes = 16 / n;  // lanes with the same sum
    const int value = lane() / lanes, s = value / 2;
    if (lane() % lanes == 0 && s < count)
      reinterpret_cast<float*>(parts + s * cluster_warps + static_cast<int>(threadIdx.x) / 32)[value % 2] = sum;
  }

  // Offset of the mean from the origin, and 1 / standard deviation, of the sequence that belongs to this half (with two
  // pairs of sequences, quarter) of the warp.
  template <int pairs>
  __device__ __forceinline__ float2 whole(float share_of_width, const NormPart* parts, int count) const {
    static_assert(cluster_warps == 16);
    float x[2 * pairs];
#pragma unroll
    for (int i = 0; i < pairs; ++i) {
      const int s = min(2 * i + lane() / 16, count - 1);
      const NormPart part = parts[s * cluster_warps + lane() % 16];
      x[2 * i] = part.sum, x[2 * i + 1] = part.square;
    }
    const float mine = sum_of_lanes<2 * pairs, 16>(x) * share_of_width;
    constexpr int of_kind = 8 / pairs;  // the bit of the lane's number that selects sums or squares
    const float other = __shfl_xor_sync(0xFFFFFFFFu, mine, of_kind);
    const bool square = (lane() & of_kind) != 0;
    const float offset = square ? other : mine, squares = square ? mine : other;
    return {offset, rsqrtf(fmaxf(squares - offset * offset, 0.0f) + 1e-5f)};
  }

  int width_, mine_;
  bool real_;
  NormElement norm_;
  float x_[most_cluster_sequences], origin_[most_cluster_sequences];
};

}  // namespace longstride::generation
