// The gradients of a decay per head, from what warps have summed for each row.
#pragma once
#include "kernels/scan/walk/decays.cuh"
#include "kernels/scan/walk/state.cuh"

namespace longstride::kernels::cuda::scanning::walk {

// Sums over columns of the products, element by element, of the warp's strip with a tile's rows: two rows a lane.
template <int K, int Blocks, class Tile>
__device__ inline void add_dots(float (&dots)[2], Strip<Blocks>& sum, const Tile& tile, int column, float sign) {
  const int row = Shares<K>::strip() * part;
  sum.each_pair([&](int r, int c, float x, float y) {
    const float2 other = tile.pair(row + r, column + c);
    dots[r / 8] += sign * (x * other.x + y * other.y);
  });
}
// Puts such sums where those of the chunk's rows are, for every group of columns.
template <int K>
__device__ inline void put_row_sums(float* to, const float (&dots)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = dots[r];
    for (int step = 1; step < 4; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
    const int row = Shares<K>::strip() * part + this_lane() / 4 + 8 * r;
    if (this_lane() % 4 == 0) to[Shares<K>::group_number() * chunk + row] = sum;
  }
}

template <int K>
struct HeadDecayParts {
  using Share = Shares<K>;
  float through[Share::groups * chunk], from_keys[Share::groups * chunk];
  float alive[chunk], small[Share::warps_of_block];

  __device__ void set_alive(const Products& products) {
    if (this_thread() < chunk) alive[this_thread()] = products.a[this_thread()];
  }
  // The warp's part of <S, decay G>.
  template <class T, int V>
  __device__ void put_crossing(State<T, K, V>& gradient, const Staged<T, K, V>& before, float scale, float over,
                               bool normalised) {
    float sum = 0;
    gradient.s.each_pair([&](int r, int c, float x, float y) {
      const float2 other = before.tile.pair(gradient.row() + r, c);
      sum += x * other.x + y * other.y;
    });
    sum *= scale;
    if (normalised && this_lane() % 4 == 0) {
      const int at = gradient.row() + this_lane() / 4;
      sum += gradient.z[0] * before.z[at] + gradient.z[2] * before.z[at + 8];
    }
    for (int step = 1; step < warp_threads; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (this_lane() == 0) small[this_warp()] = over > 0 ? over * sum : 0.0f;
  }
  // By a warp, two rows a lane, once all others have put their parts. These cancel.
  __device__ void write(const ScanCall& call, const Place& at) const {
    if (this_warp() != 0) return;
    const int lane = this_lane(), t = 2 * lane;
    double late[2] = {}, early[2] = {}, crossing = 0;
#pragma unroll
    for (int g = 0; g < Share::groups; ++g)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        late[i] += through[g * chunk + t + i];
        early[i] += from_keys[g * chunk + t + i];
      }
    for (int w = 0; w < Share::warps_of_block; ++w) crossing += small[w];
    double from = late[0] + late[1], to = early[0] + early[1];
#pragma unroll
    for (int step = 1; step < warp_threads; step *= 2) {
      const double behind_it = __shfl_sync(~0u, from, min(lane + step, warp_threads - 1)),
                   before_it = __shfl_sync(~0u, to, max(lane - step, 0));
      if (lane + step < warp_threads) from += behind_it;
      if (lane >= step) to += before_it;
    }
    const double earlier = to - early[0] - early[1];
    const double x[2] = {crossing + from + earlier, crossing + from - late[0] + earlier + early[0]};
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (t + i < at.count) call.ddecay[at.at(call, t + i)] = alive[t + i] > 0 ? static_cast<float>(x[i]) : 0.0f;
  }
};

}  // namespace longstride::kernels::cuda::scanning::walk
