// dq of a query tile, and what it adds to the gradients of the biases and of the span: P and dS over the key tiles that
// it sees.
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/distance_attention/gpu/probabilities.cuh"

namespace longstride::kernels::cuda::distance {
namespace {

template <class T, int Key, int Value>
struct DqShared {
  T content[tile_rows * Key], position[tile_rows * Key], dout[tile_rows * Value];
  T k[2][tile_rows * Key], v[2][tile_rows * Value];
  T window[3 * tile_rows * Key];
  T skewed[block_warps][skew_elements];
};

// The sums over a warp's 16 rows of its accumulator, times `scale`.
template <int Columns>
__device__ inline void sum_rows(const float (&d)[Columns / 8][4], float scale, int size, float* to) {
#pragma unroll
  for (int j = 0; j < Columns / 8; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float sum = d[j][e] + d[j][e + 2];
#pragma unroll
      for (int offset = 4; offset < warp_threads; offset *= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
      if (this_lane() < 4 && fragment_column(j, e) < size) to[fragment_column(j, e)] = sum * scale;
    }
}

template <class T, int Key, int Value>
__global__ void __launch_bounds__(block_threads) dq_kernel(const __grid_constant__ Call call) {
  const auto h = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t tiles = query_tiles_of(call.n_q, call.step[h]);
  const std::int32_t number = static_cast<std::int32_t>(gridDim.x - 1 - blockIdx.x);  // the last have the most keys
  const Place p(call, static_cast<std::int32_t>(blockIdx.z), h, number);
  const TileRange range = number < tiles ? key_tiles(p, p.tile) : TileRange{0, 0};

  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared = *reinterpret_cast<DqShared<T, Key, Value>*>(memory);
  const Tile<T, Key> content{shared.content}, position{shared.position};
  const Tile<T, Value> dout{shared.dout};
  const Window<T, Key> window{shared.window};
  const SkewedGradient<T> skewed{shared.skewed[this_warp()]};
  const auto load = [&](std::int32_t s, int stage) {
    load_keys(call.k, p, s, Tile<T, Key>{shared.k[stage]}, call.size);
    load_keys(call.v, p, s, Tile<T, Value>{shared.v[stage]}, call.value_size);
    window.load(call, p.head, p.tile - s);
  };
  if (range.begin < range.end) {
    load_queries(call, call.content, p, p.tile, content, call.size);
    if (call.table != nullptr) load_queries(call, call.position, p, p.tile, position, call.size);
    load_queries(call, call.dout, p, p.tile, dout, call.value_size);
    window.load(call, p.head, p.tile - range.begin + 1);
    load(range.begin, 0);
  }
  copies_commit();
  skewed.clear();

  const LaneRows rows(call, p, p.tile, warp_row());
  float by_content[Key / 8][4] = {}, by_position[Key / 8][4] = {}, span = 0;
  int stage = 0;
  for (std::int32_t s = range.begin; s < range.end; ++s, stage ^= 1) {
    copies_wait<0>();
    __syncthreads();
    if (s + 1 < range.end) load(s + 1, stage ^ 1);
    copies_commit();
    const TilePairs pairs(p, p.tile, s);
    const Tile<T, Key> k{shared.k[stage]};
    float x[1][scores][4], dp[scores][4];
    multiply_transposed<T, tile_rows>(x[0], content, warp_row(), k);
    if (call.table != nullptr) add_distance_scores(x, position, warp_row(), window, p.tile - s);
    multiply_transposed<T, tile_rows>(dp, dout, warp_row(), Tile<T, Value>{shared.v[stage]});
    span += to_score_gradients(call, p, rows, pairs, s, x[0], dp);
    multiply_probabilities<T, tile_rows>(by_content, dp, k);
    if (call.table == nullptr) continue;
    skewed.store(dp);
    __syncwarp();
    multiply_skewed<Key>(by_position, skewed, window, p.tile - s);
    __syncwarp();
  }

  copies_wait<0>();
  __syncthreads();  // the stages are free
  auto* const sums = reinterpret_cast<float*>(shared.v);
  const int width = 2 * call.size + 1;
  static_assert(block_warps * (2 * Key + 1) * sizeof(float) <= sizeof(shared.v));
  float* const own = sums + this_warp() * width;
  sum_rows<Key>(by_content, call.scale, call.size, own);
  sum_rows<Key>(by_position, call.scale, call.size, own + call.size);
  span = warp_sum(span);
  if (this_lane() == 0) own[2 * call.size] = call.span != nullptr ? span * (call.longest_span / call.ramp) : 0.0f;
  __syncthreads();
  const std::int64_t unit = static_cast<std::int64_t>(p.head.sequence) * call.heads + h;
  float* const to = call.bias_sums + (unit * call.query_tiles + number) * width;
  for (int x = this_thread(); x < width; x += block_threads)
    to[x] = sums[x] + sums[x + width] + sums[x + 2 * width] + sums[x + 3 * width];
#pragma unroll
  for (int j = 0; j < Key / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) by_content[j][e] = call.scale * (by_content[j][e] + by_position[j][e]);
  store_rows(by_content, Tile<T, Key>{shared.k[0] + warp_row() * Key}, call.size, [&](int r) -> T* {
    const std::int32_t entry = p.first_query(p.tile) + warp_row() + r;
    return number < tiles && p.is_query(entry) ? row_of<T>(call.dq, p.head, p.query(call, entry)) : nullptr;
  });
}

}  // namespace

template <class T>
void dq(const Call& call, const Launch& launch) {
  with_head_sizes(call, [&](auto sizes) {
    constexpr int key = decltype(sizes)::key, value = decltype(sizes)::value;
    constexpr std::size_t bytes = sizeof(DqShared<T, key, value>);
    allow_shared(dq_kernel<T, key, value>, bytes);
    run("distance attention dq", dq_kernel<T, key, value>,
        {dim3(static_cast<unsigned>(call.query_tiles), static_cast<unsigned>(call.heads),
              static_cast<unsigned>(call.batch)),
         block_threads, bytes},
        launch, call);
  });
}
template void dq<__nv_bfloat16>(const Call&, const Launch&);
template void dq<__half>(const Call&, const Launch&);

}  // namespace longstride::kernels::cuda::distance
