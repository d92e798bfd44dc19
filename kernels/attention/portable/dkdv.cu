// dk and dv of a key tile of a part: P^T and dS^T over the query tiles that may attend to it.
#include "kernels/attention/portable/products.cuh"
#include "kernels/base/cuda_launch.cuh"

namespace longstride::kernels::cuda::portable {
namespace {

// Both gradients and both score tiles are in registers, so with 128 and 128 columns there is room for half a tile of
// queries.
template <int Key, int Value>
constexpr TileShape tile_shape{Key + Value > 192 ? 32 : 64, 64};

// The data of a tile of queries besides its rows of q and dO.
template <int Queries>
struct QueryScalars {
  float lse[Queries], delta[Queries];
  std::int32_t low[Queries], high[Queries];
};

template <class T, int Key, int Value>
constexpr std::size_t shared_bytes() {
  constexpr TileShape tile = tile_shape<Key, Value>;
  return sizeof(T) * (tile.keys + 2 * tile.queries) * (Key + Value) + 2 * sizeof(QueryScalars<tile.queries>);
}

// Turns transposed scores `s` and dP `dp` (keys x queries) into P and dS.
template <int Queries>
__device__ inline void to_score_gradients(float (&s)[Queries / 8][4], float (&dp)[Queries / 8][4], float scale,
                                          const QueryScalars<Queries>& query, bool masked, std::int32_t first_key) {
  const int lane = static_cast<int>(threadIdx.x % warp_threads), first = lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < Queries / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int column = 8 * j + first + e % 2;
      const std::int32_t key = first_key + lane / 4 + e / 2 * 8;
      const bool allowed = !masked || (key >= query.low[column] && key < query.high[column]);
      const float p = exp2_approx(fmaf(s[j][e], scale, -query.lse[column] * log2_e));
      s[j][e] = allowed ? p : 0.0f;
      dp[j][e] = s[j][e] * (dp[j][e] - query.delta[column]);
    }
}

template <class T, int Key, int Value>
__global__ __launch_bounds__(block_threads) void dkdv_kernel(const __grid_constant__ Call call) {
  constexpr TileShape tile = tile_shape<Key, Value>;
  const PassArgs& pass = pass_of(call.group);
  const Part& part = pass.part[0];
  const WorkUnit unit = unit_of(call.group, tiles_in(part.keys.length, tile.keys), pass, false);
  const RowSet queries = rows_within(pass.queries, unit.residue, call.n_q);
  const Seen seen(call, unit, part);
  const EntryPositions keys(seen.keys);
  const std::int32_t begin = unit.tile * tile.keys;
  if (begin >= keys.set.length) return;
  __shared__ std::int32_t found[4];
  const TileSpan span = query_tiles_by_block(seen, queries, tile, unit.tile, found);
  if (pass.adds && span.begin >= span.end) return;

  extern __shared__ __align__(128) unsigned char shared[];
  const Tile<T, Key> k{reinterpret_cast<T*>(shared)};
  const Tile<T, Value> v{k.data + tile.keys * Key};
  T* const stages = v.data + tile.keys * Value;
  const auto q_of = [&](int stage) { return Tile<T, Key>{stages + stage * tile.queries * (Key + Value)}; };
  const auto dout_of = [&](int stage) { return Tile<T, Value>{q_of(stage).data + tile.queries * Key}; };
  auto* const scalars = reinterpret_cast<QueryScalars<tile.queries>*>(stages + 2 * tile.queries * (Key + Value));
  const EntryPositions query_positions(queries);
  const HeadRows<const T> q_rows(call.q, unit), dout_rows(call.dout, unit);
  const std::int64_t row = lse_row(call, unit);
  const auto masked = [&](std::int32_t t) { return t < span.full_begin || t >= span.full_end; };
  const auto load_queries = [&](std::int32_t t, int stage) {
    const std::int32_t first = t * tile.queries;
    load_tile<tile.queries>(q_of(stage), q_rows, call.key_size, query_positions, first, call.aligned);
    load_tile<tile.queries>(dout_of(stage), dout_rows, call.value_size, query_positions, first, call.aligned);
    const auto x = static_cast<std::int32_t>(threadIdx.x);
    if (x >= tile.queries) return;
    const bool valid = first + x < queries.length;  // rows beyond the end are zero and add nothing
    const std::int32_t position = valid ? query_positions.at(first + x) : 0;
    copy_async_4(&scalars[stage].lse[x], call.lse + row + position, valid);
    copy_async_4(&scalars[stage].delta[x], call.delta + row + position, valid);
    if (!masked(t)) return;
    const Interval in = valid ? seen.interval(position) : Interval{};
    scalars[stage].low[x] = in.begin;
    scalars[stage].high[x] = in.end;
  };
  load_tile<tile.keys>(k, HeadRows<const T>(call.k, unit), call.key_size, keys, begin, call.aligned);
  load_tile<tile.keys>(v, HeadRows<const T>(call.v, unit), call.value_size, keys, begin, call.aligned);
  if (span.begin < span.end) load_queries(span.begin, 0);
  copies_commit();

  const int warp_row = static_cast<int>(threadIdx.x / warp_threads) * 16, lane = threadIdx.x % warp_threads;
  float dk[Key / 8][4] = {}, dv[Value / 8][4] = {};
  const float scale = call.scale * log2_e;
  int stage = 0;
  for (std::int32_t t = span.begin; t < span.end; ++t, stage ^= 1) {
    copies_wait<0>();
    __syncthreads();
    if (t + 1 < span.end) load_queries(t + 1, stage ^ 1);
    copies_commit();
    float s[tile.queries / 8][4], dp[tile.queries / 8][4];
    multiply_transposed<T, tile.queries>(s, k, warp_row, q_of(stage));
    multiply_transposed<T, tile.queries>(dp, v, warp_row, dout_of(stage));
    to_score_gradients<tile.queries>(s, dp, scale, scalars[stage], masked(t), begin + warp_row);
    multiply_probabilities<T, tile.queries>(dv, s, dout_of(stage));
    multiply_probabilities<T, tile.queries>(dk, dp, q_of(stage));
  }

  copies_wait<0>();
  __syncthreads();  // k and v are not needed any more: results are stored through their tiles
  const HeadRows<T> dk_rows(call.dk, unit), dv_rows(call.dv, unit);
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
#pragma unroll
    for (int j = 0; j < Key / 8; ++j) {
      dk[j][2 * upper] *= call.scale;
      dk[j][2 * upper + 1] *= call.scale;
    }
    const std::int32_t entry = begin + warp_row + lane / 4 + 8 * upper;
    if (!pass.adds || entry >= keys.set.length) continue;
    add_row(dk, upper, dk_rows.at(keys.at(entry)), call.key_size, call.aligned);
    add_row(dv, upper, dv_rows.at(keys.at(entry)), call.value_size, call.aligned);
  }
  store_rows(dk, Tile<T, Key>{k.data + warp_row * Key}, dk_rows, call.key_size, keys, begin + warp_row, call.aligned);
  store_rows(dv, Tile<T, Value>{v.data + warp_row * Value}, dv_rows, call.value_size, keys, begin + warp_row,
             call.aligned);
}

}  // namespace

template <class T>
void dkdv(const Call& call, const Launch& launch) {
  with_head_sizes(call, [&](auto sizes) {
    constexpr int key = decltype(sizes)::key, value = decltype(sizes)::value;
    constexpr std::size_t bytes = shared_bytes<T, key, value>();
    allow_shared(dkdv_kernel<T, key, value>, bytes);
    run("attention dkdv", dkdv_kernel<T, key, value>,
        {grid_of(call, tile_shape<key, value>.keys, Side::keys), block_threads, bytes}, launch, call);
  });
}
template void dkdv<__nv_bfloat16>(const Call&, const Launch&);
template void dkdv<__half>(const Call&, const Launch&);

}  // namespace longstride::kernels::cuda::portable
