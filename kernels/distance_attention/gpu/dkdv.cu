// dk and dv of a key tile: P and dS of the query tiles that see it, which pass through shared memory, because a warp
// computes them for sixteen queries and needs them for sixteen keys.
#include <algorithm>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/distance_attention/gpu/probabilities.cuh"

namespace longstride::kernels::cuda::distance {
namespace {

template <class T, int Key, int Value>
struct DkdvShared {
  T k[tile_rows * Key], v[tile_rows * Value];
  T content[2][tile_rows * Key], position[2][tile_rows * Key], dout[2][tile_rows * Value];
  T window[3 * tile_rows * Key];
  T p[tile_rows * tile_rows], ds[tile_rows * tile_rows];  // (queries, keys)
};

// Stores a warp's 16 x 64 accumulator, rounded to T, as rows of a tile.
template <class T>
__device__ inline void store_scores(Tile<T, tile_rows> tile, const float (&s)[scores][4]) {
#pragma unroll
  for (int j = 0; j < scores; ++j)
#pragma unroll
    for (int e = 0; e < 4; e += 2)
      *reinterpret_cast<std::uint32_t*>(tile.chunk(warp_row() + fragment_row(e), j) + this_lane() % 4 * 2) =
          pack<T>(s[j][e], s[j][e + 1]);
}

// d (16 keys x Columns) += columns [warp_row(), +16) of p, transposed, times b (queries x Columns).
template <class T, int Columns>
__device__ inline void multiply_columns(float (&d)[Columns / 8][4], Tile<T, tile_rows> p, Tile<T, Columns> b) {
  const int lane = this_lane();
#pragma unroll
  for (int k = 0; k < tile_rows / 16; ++k) {
    std::uint32_t left[4];
    load_matrices_transposed(left, p.chunk(16 * k + lane % 8 + lane / 16 * 8, warp_row() / 8 + lane / 8 % 2));
#pragma unroll
    for (int j = 0; j < Columns / 16; ++j) {
      std::uint32_t right[4];
      load_matrices_transposed(right, b.chunk(16 * k + lane % 16, 2 * j + lane / 16));
      multiply_add<T>(d[2 * j], left, right[0], right[1]);
      multiply_add<T>(d[2 * j + 1], left, right[2], right[3]);
    }
  }
}

template <class T, int Key, int Value>
__global__ void __launch_bounds__(block_threads) dkdv_kernel(const __grid_constant__ Call call) {
  const auto h = static_cast<std::int32_t>(blockIdx.y), number = static_cast<std::int32_t>(blockIdx.x);
  const Place p(call, static_cast<std::int32_t>(blockIdx.z), h, number);
  const std::int32_t s = p.tile;
  if (s * tile_rows >= p.in.entries) return;
  const TileRange range = query_tiles(p, s);

  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared = *reinterpret_cast<DkdvShared<T, Key, Value>*>(memory);
  const Tile<T, Key> k{shared.k};
  const Tile<T, Value> v{shared.v};
  const Tile<T, tile_rows> probabilities{shared.p}, gradients{shared.ds};
  const Window<T, Key> window{shared.window};
  const auto load = [&](std::int32_t t, int stage) {
    load_queries(call, call.content, p, t, Tile<T, Key>{shared.content[stage]}, call.size);
    if (call.table != nullptr) load_queries(call, call.position, p, t, Tile<T, Key>{shared.position[stage]}, call.size);
    load_queries(call, call.dout, p, t, Tile<T, Value>{shared.dout[stage]}, call.value_size);
    window.load(call, p.head, t - s + 1);
  };
  if (range.begin < range.end) {
    load_keys(call.k, p, s, k, call.size);
    load_keys(call.v, p, s, v, call.value_size);
    window.load(call, p.head, range.begin - s);
    load(range.begin, 0);
  }
  copies_commit();

  float dk[Key / 8][4] = {}, dv[Value / 8][4] = {};
  int stage = 0;
  for (std::int32_t t = range.begin; t < range.end; ++t, stage ^= 1) {
    const LaneRows rows(call, p, t, warp_row());
    copies_wait<0>();
    __syncthreads();
    if (t + 1 < range.end) load(t + 1, stage ^ 1);
    copies_commit();
    const TilePairs pairs(p, t, s);
    const Tile<T, Key> content{shared.content[stage]};
    const Tile<T, Value> dout{shared.dout[stage]};
    float x[1][scores][4], dp[scores][4];
    multiply_transposed<T, tile_rows>(x[0], content, warp_row(), k);
    if (call.table != nullptr) add_distance_scores(x, Tile<T, Key>{shared.position[stage]}, warp_row(), window, t - s);
    multiply_transposed<T, tile_rows>(dp, dout, warp_row(), v);
    to_score_gradients(call, p, rows, pairs, s, x[0], dp);
    store_scores(probabilities, x[0]);
    store_scores(gradients, dp);
    __syncthreads();
    multiply_columns(dv, probabilities, dout);
    multiply_columns(dk, gradients, content);
  }

  copies_wait<0>();
  __syncthreads();  // k and v are not needed any more: results are stored through them
#pragma unroll
  for (int j = 0; j < Key / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) dk[j][e] *= call.scale;
  const auto row = [&](const HeadMatrix& m, int r) -> T* {
    const std::int32_t entry = s * tile_rows + warp_row() + r;
    return entry < p.in.entries ? row_of<T>(m, p.head, p.in.position(entry)) : nullptr;
  };
  store_rows(dk, Tile<T, Key>{shared.k + warp_row() * Key}, call.size, [&](int r) { return row(call.dk, r); });
  store_rows(dv, Tile<T, Value>{shared.v + warp_row() * Value}, call.value_size,
             [&](int r) { return row(call.dv, r); });
}

}  // namespace

template <class T>
void dkdv(const Call& call, const Launch& launch) {
  std::int32_t tiles = 0;
  for (std::int32_t h = 0; h < call.heads; ++h) tiles = std::max(tiles, key_tiles_of(call.n_k, call.step[h]));
  with_head_sizes(call, [&](auto sizes) {
    constexpr int key = decltype(sizes)::key, value = decltype(sizes)::value;
    constexpr std::size_t bytes = sizeof(DkdvShared<T, key, value>);
    allow_shared(dkdv_kernel<T, key, value>, bytes);
    run("distance attention dkdv", dkdv_kernel<T, key, value>,
        {dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(call.heads), static_cast<unsigned>(call.batch)),
         block_threads, bytes},
        launch, call);
  });
}
template void dkdv<__nv_bfloat16>(const Call&, const Launch&);
template void dkdv<__half>(const Call&, const Launch&);

}  // namespace longstride::kernels::cuda::distance
