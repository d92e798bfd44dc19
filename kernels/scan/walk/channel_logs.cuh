// A chunk's decays where every channel of the keys has one a position, as sums of their logarithms with base 2. With
// L_i the sum through row i, a row is scaled once, relative to a reference m of its channel:
//   q_i exp2(L_i - m),   k_j exp2(m - L_j),   so that D_ij = exp2(L_i - L_j) is in their product.
// Relative to the chunk's start for queries, or its end for keys, no exponent is positive, whatever the decays.
// Relative to its middle one of them is, but no larger than the chunk's whole decay: where that of every channel is
// weak all products of the chunk are of rows scaled so. A decay of 0 is exp(-128), which is 0.
#pragma once
#include "kernels/base/approximate.cuh"
#include "kernels/gpu/global.cuh"
#include "kernels/scan/walk/rows.cuh"

namespace longstride::kernels::cuda::scanning::walk {

// The exponential of the first is 0, that of the second is not.
inline constexpr float no_decay_left = -128, smallest_decay = -104;
// The strongest decay of a chunk, by its logarithm, for which rows are relative to its middle.
template <class T>
inline constexpr float strongest_of_chunk = std::is_same_v<T, __half> ? -5.0f : -60.0f;

// A thread's rows of a part, two channels: logarithms, and once summed their sums from the part's start.
template <int K>
struct ChannelLogs {
  using Share = Shares<K>;
  using Totals = float[parts][K];  // over parts
  float2 x[part];

  __device__ static int channel() { return Share::group_number() * (K / Share::groups) + 2 * this_lane(); }
  __device__ static int first_row() { return Share::strip() * part; }

  __device__ void fetch(const ScanCall& call, const Place& place) {
    const int c = channel(), first = first_row();
    const bool low_there = c < call.key_size, high_there = c + 1 < call.key_size;
    const float* from = call.decay + place.at(call, first) * call.key_size + c;
    const std::int64_t next = static_cast<std::int64_t>(call.heads) * call.key_size;
    if (call.key_size % 2 == 0) {
#pragma unroll
      for (int i = 0; i < part; ++i, from += next)
        x[i] = load_or_zero(reinterpret_cast<const float2*>(from), low_there && first + i < place.count);
    } else {
#pragma unroll
      for (int i = 0; i < part; ++i, from += next) {
        const bool there = first + i < place.count;
        x[i] = {load_or_zero(from, low_there && there), load_or_zero(from + 1, high_there && there)};
      }
    }
    if (call.begin == nullptr) return;
#pragma unroll
    for (int i = 0; i < part; ++i)
      if (first + i < place.count && begins(call, place, first + i)) x[i] = {no_decay_left, no_decay_left};
  }
  __device__ static bool begins(const ScanCall& call, const Place& place, int at) {
    const int position = place.first + at;
    return position > 0 && call.begin[static_cast<std::int64_t>(place.sequence) * call.n + position] == position;
  }
  // Followed by a barrier.
  __device__ void sum(Totals& totals) {
    float2 through{0, 0};
#pragma unroll
    for (int i = 0; i < part; ++i) {
      through.x += log2_e * fmaxf(x[i].x, no_decay_left);
      through.y += log2_e * fmaxf(x[i].y, no_decay_left);
      x[i] = through;
    }
    *reinterpret_cast<float2*>(&totals[Share::strip()][channel()]) = through;
  }
  // Makes sums relative to the chunk's start, or to its end.
  __device__ void refer_to_start(const Totals& totals) {
    const float2 before = over_parts(totals, 0, Share::strip());
    add(before.x, before.y);
  }
  __device__ void refer_to_end(const Totals& totals) {
    const float2 behind = over_parts(totals, Share::strip(), parts);
    add(-behind.x, -behind.y);
  }
  // To its middle: sums of weak decays are above -128.
  __device__ void refer_to_middle(const Totals& totals) {
    constexpr float rounds = 192;
    const int c = channel();
    const float2 before = over_parts(totals, 0, Share::strip()),
                 middle{rounds + middle_of(totals, c), rounds + middle_of(totals, c + 1)};
#pragma unroll
    for (float2& sum : x) {
      sum.x = (sum.x + before.x + rounds) - middle.x;
      sum.y = (sum.y + before.y + rounds) - middle.y;
    }
  }
  // Scales the same rows and channels of a tile, of queries or of keys; f(row, channel, the factors).
  template <bool Queries, class T, class F>
  __device__ void scale(Swizzled<T, K> tile, F&& f) const {
    const int c = channel();
#pragma unroll
    for (int i = 0; i < part; ++i) {
      const int at = first_row() + i;
      const float2 element = tile.pair(at, c),
                   factor = {exp2_approx(Queries ? x[i].x : -x[i].x), exp2_approx(Queries ? x[i].y : -x[i].y)};
      tile.set_pair(at, c, element.x * factor.x, element.y * factor.y);
      f(at, c, factor);
    }
  }
  template <bool Queries, class T>
  __device__ void scale(Swizzled<T, K> tile) const {
    scale<Queries>(tile, [](int, int, float2) {});
  }
  // True if the decay of one of the thread's channels over the chunk is strong.
  template <class T>
  __device__ static bool strong(const Totals& totals) {
    const float2 sum = over_parts(totals, 0, parts);
    return !(fminf(sum.x, sum.y) >= log2_e * strongest_of_chunk<T>);
  }
  // A channel's decay over the chunk, to its middle, and from there on.
  __device__ static float whole(const Totals& totals, int c) { return exp2_approx(sum_of(totals, c)); }
  __device__ static float to_middle(const Totals& totals, int c) { return exp2_approx(middle_of(totals, c)); }
  __device__ static float from_middle(const Totals& totals, int c) {
    return exp2_approx(sum_of(totals, c) - middle_of(totals, c));
  }

 private:
  __device__ static float middle_of(const Totals& totals, int c) { return rintf(totals[0][c] + totals[1][c]); }
  __device__ static float sum_of(const Totals& totals, int c) {
    return totals[0][c] + totals[1][c] + (totals[2][c] + totals[3][c]);
  }
  // The thread's channels over parts [from, to).
  __device__ static float2 over_parts(const Totals& totals, int from, int to) {
    float2 sum{0, 0};
#pragma unroll
    for (int p = 0; p < parts; ++p) {
      const float2 over = *reinterpret_cast<const float2*>(&totals[p][channel()]);
      sum.x += p >= from && p < to ? over.x : 0.0f;
      sum.y += p >= from && p < to ? over.y : 0.0f;
    }
    return sum;
  }
  __device__ void add(float low, float high) {
#pragma unroll
    for (float2& sum : x) {
      sum.x += low;
      sum.y += high;
    }
  }
};

// Which runs have a strong chunk is known once their sums are: walks take the runs of their kind.
__device__ inline bool is_strong(const ScanCall& call, int unit, int run) {
  return call.strong[unit * call.chunks + run] != 0;
}

}  // namespace longstride::kernels::cuda::scanning::walk
