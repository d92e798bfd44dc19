// o and lse of a query tile: an online softmax over the key tiles that it sees.
#include "kernels/base/cuda_launch.cuh"
#include "kernels/distance_attention/gpu/probabilities.cuh"

namespace longstride::kernels::cuda::distance {
namespace {

template <class T, int Key, int Value>
struct ForwardShared {
  T content[tile_rows * Key], position[tile_rows * Key];
  T k[2][tile_rows * Key], v[2][tile_rows * Value];
  T window[3 * tile_rows * Key];
};

template <class T, int Key, int Value>
__global__ void __launch_bounds__(block_threads) forward_kernel(const __grid_constant__ Call call) {
  const auto h = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t tiles = query_tiles_of(call.n_q, call.step[h]);
  const std::int32_t number = tiles - 1 - static_cast<std::int32_t>(blockIdx.x);  // the last tiles have the most keys
  if (number < 0) return;
  const Place p(call, static_cast<std::int32_t>(blockIdx.z), h, number);
  if (p.first_query(p.tile) >= p.in.entries) return;
  const TileRange range = key_tiles(p, p.tile);

  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared = *reinterpret_cast<ForwardShared<T, Key, Value>*>(memory);
  const Tile<T, Key> content{shared.content}, position{shared.position};
  const Window<T, Key> window{shared.window};
  const auto load = [&](std::int32_t s, int stage) {
    load_keys(call.k, p, s, Tile<T, Key>{shared.k[stage]}, call.size);
    load_keys(call.v, p, s, Tile<T, Value>{shared.v[stage]}, call.value_size);
    window.load(call, p.head, p.tile - s);
  };
  load_queries(call, call.content, p, p.tile, content, call.size);
  if (call.table != nullptr) load_queries(call, call.position, p, p.tile, position, call.size);
  if (range.begin < range.end) {
    window.load(call, p.head, p.tile - range.begin + 1);
    load(range.begin, 0);
  }
  copies_commit();

  const LaneRows rows(call, p, p.tile);
  float acc[Value / 8][4] = {};
  Softmax softmax;
  int stage = 0;
  for (std::int32_t s = range.begin; s < range.end; ++s, stage ^= 1) {
    copies_wait<0>();
    __syncthreads();
    if (s + 1 < range.end) load(s + 1, stage ^ 1);
    copies_commit();
    const TilePairs pairs(p, p.tile, s);
    float x[scores][4];
    multiply_transposed<T, tile_rows>(x, content, warp_row(), Tile<T, Key>{shared.k[stage]});
    if (call.table != nullptr) add_distance_scores(x, position, window, p.tile - s);
    scale_scores(x, call.scale * log2_e, p.head, pairs);
    softmax.exponentiate(x, acc);
    softmax.add(x, p.head, pairs);
    if (call.kept.limit > 0) each_kept(call, p, rows, s, [&](int j, int e, float keep) { x[j][e] *= keep; });
    multiply_probabilities<T, tile_rows>(acc, x, Tile<T, Value>{shared.v[stage]});
  }

  copies_wait<0>();
  __syncthreads();  // the stages are free: results are stored through them
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
    float sum = softmax.sum[upper];
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
    const float share = sum > 0 ? 1 / sum : 0.0f;
#pragma unroll
    for (int j = 0; j < Value / 8; ++j) {
      acc[j][2 * upper] *= share;
      acc[j][2 * upper + 1] *= share;
    }
    const std::int32_t entry = p.first_query(p.tile) + warp_row() + fragment_row(2 * upper);
    if (this_lane() % 4 == 0 && p.is_query(entry))
      call.lse[p.head.row(call, p.query(call, entry))] = sum > 0 ? (softmax.top[upper] + log2f(sum)) * ln_2 : -INFINITY;
  }
  store_rows(acc, Tile<T, Value>{shared.v[0] + warp_row() * Value}, call.value_size, [&](int r) -> T* {
    const std::int32_t entry = p.first_query(p.tile) + warp_row() + r;
    return p.is_query(entry) ? row_of<T>(call.o, p.head, p.query(call, entry)) : nullptr;
  });
}

}  // namespace

template <class T>
void forward(const Call& call, const Launch& launch) {
  with_head_sizes(call, [&](auto sizes) {
    constexpr int key = decltype(sizes)::key, value = decltype(sizes)::value;
    constexpr std::size_t bytes = sizeof(ForwardShared<T, key, value>);
    allow_shared(forward_kernel<T, key, value>, bytes);
    run("distance attention forward", forward_kernel<T, key, value>,
        {dim3(static_cast<unsigned>(call.query_tiles), static_cast<unsigned>(call.heads),
              static_cast<unsigned>(call.batch)),
         block_threads, bytes},
        launch, call);
  });
}
template void forward<__nv_bfloat16>(const Call&, const Launch&);
template void forward<__half>(const Call&, const Launch&);

}  // namespace longstride::kernels::cuda::distance
