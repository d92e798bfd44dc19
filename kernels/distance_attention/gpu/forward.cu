// o and lse of the queries of a block: an online softmax over the key tiles that they see.
#include <algorithm>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/distance_attention/gpu/probabilities.cuh"

namespace longstride::kernels::cuda::distance {
namespace {

// A warp has one or two strips of sixteen queries. Two share what they read from shared memory, which limits this
// kernel, but there are registers for two only with small heads.
template <int Key, int Value>
constexpr int strips_of = Key + Value <= 128 ? 2 : 1;

template <class T, int Key, int Value>
struct ForwardShared {
  static constexpr int strips = strips_of<Key, Value>, rows = strips * tile_rows;
  T content[rows * Key], position[rows * Key];
  T k[2][tile_rows * Key], v[2][tile_rows * Value];
  T window[(strips + 2) * tile_rows * Key];
};

// The tiles of queries of a class and head, `strips` tile_rows each.
__host__ __device__ inline std::int32_t block_tiles(std::int32_t n_q, std::int32_t step, int strips) {
  return step * ((query_tiles_of(n_q, step) / step + strips - 1) / strips);
}

template <class T, int Key, int Value>
__global__ void __launch_bounds__(block_threads) forward_kernel(const __grid_constant__ Call call) {
  using Shared = ForwardShared<T, Key, Value>;
  constexpr int strips = Shared::strips;
  const auto h = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t number = block_tiles(call.n_q, call.step[h], strips) - 1 -
                              static_cast<std::int32_t>(blockIdx.x);  // the last tiles have the most keys
  if (number < 0) return;
  const Place p(call, static_cast<std::int32_t>(blockIdx.z), h, number);
  const std::int32_t first = p.tile * strips;  // query tile
  if (p.first_query(first) >= p.in.entries) return;
  TileRange range = key_tiles(p, first);
  for (int u = 1; u < strips; ++u) range = joined(range, key_tiles(p, first + u));

  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const Tile<T, Key> content{shared.content}, position{shared.position};
  const Window<T, Key, strips + 2> window{shared.window};
  const auto load = [&](std::int32_t s, int stage) {
    load_keys(call.k, p, s, Tile<T, Key>{shared.k[stage]}, call.size);
    load_keys(call.v, p, s, Tile<T, Value>{shared.v[stage]}, call.value_size);
    window.load(call, p.head, first - s);
  };
  for (int u = 0; u < strips; ++u) {
    load_queries(call, call.content, p, first + u, Tile<T, Key>{shared.content + u * tile_rows * Key}, call.size);
    if (call.table != nullptr)
      load_queries(call, call.position, p, first + u, Tile<T, Key>{shared.position + u * tile_rows * Key}, call.size);
  }
  if (range.begin < range.end) {
    for (int u = 1; u <= strips; ++u) window.load(call, p.head, first - range.begin + u);
    load(range.begin, 0);
  }
  copies_commit();

  const int row = this_warp() * strips * warp_rows;  // this warp's first query
  float acc[strips][Value / 8][4] = {};
  Softmax softmax[strips];
  int stage = 0;
  for (std::int32_t s = range.begin; s < range.end; ++s, stage ^= 1) {
    copies_wait<0>();
    __syncthreads();
    if (s + 1 < range.end) load(s + 1, stage ^ 1);
    copies_commit();
    const TilePairs pairs(p, first, s, Shared::rows);
    const std::int32_t farthest = pairs.base + row + strips * warp_rows - 1, nearest = pairs.base + row - tile_rows + 1;
    if (farthest < p.head.reach.begin || nearest >= p.head.reach.end) continue;  // none of this warp's queries sees it
    float x[strips][scores][4];
    multiply_strips<T, tile_rows>(x, content, row, Tile<T, Key>{shared.k[stage]});
    if (call.table != nullptr) add_distance_scores(x, position, row, window, first - s);
#pragma unroll
    for (int u = 0; u < strips; ++u) {
      scale_scores(x[u], call.scale * log2_e, p.head, pairs, row + u * warp_rows);
      softmax[u].exponentiate(x[u], acc[u]);
      softmax[u].add(x[u], p.head, pairs, row + u * warp_rows);
      if (call.kept.limit == 0) continue;
      const LaneRows rows(call, p, first, row + u * warp_rows);
      each_kept(call, p, rows, s, [&](int j, int e, float keep) { x[u][j][e] *= keep; });
    }
    multiply_probability_strips<T, tile_rows>(acc, x, Tile<T, Value>{shared.v[stage]});
  }

  copies_wait<0>();
  __syncthreads();  // the stages are free: results are stored through them
#pragma unroll
  for (int u = 0; u < strips; ++u) {
    const std::int32_t begin = p.first_query(first) + row + u * warp_rows;  // entry
    softmax[u].finish(acc[u], [&](int r, float lse) {
      if (p.is_query(begin + r)) call.lse[p.head.row(call, p.query(call, begin + r))] = lse;
    });
    store_rows(acc[u], Tile<T, Value>{shared.v[0] + this_warp() * warp_rows * Value}, call.value_size,
               [&](int r) -> T* {
                 return p.is_query(begin + r) ? row_of<T>(call.o, p.head, p.query(call, begin + r)) : nullptr;
               });
    __syncwarp();
  }
}

}  // namespace

template <class T>
void forward(const Call& call, const Launch& launch) {
  with_head_sizes(call, [&](auto sizes) {
    constexpr int key = decltype(sizes)::key, value = decltype(sizes)::value;
    constexpr std::size_t bytes = sizeof(ForwardShared<T, key, value>);
    std::int32_t tiles = 0;
    for (std::int32_t h = 0; h < call.heads; ++h)
      tiles = std::max(tiles, block_tiles(call.n_q, call.step[h], strips_of<key, value>));
    allow_shared(forward_kernel<T, key, value>, bytes);
    run("distance attention forward", forward_kernel<T, key, value>,
        {dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(call.heads), static_cast<unsigned>(call.batch)),
         block_threads, bytes},
        launch, call);
  });
}
template void forward<__nv_bfloat16>(const Call&, const Launch&);
template void forward<__half>(const Call&, const Launch&);

}  // namespace longstride::kernels::cuda::distance
