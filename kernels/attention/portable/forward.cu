// o and lse of a query tile: an online softmax over the key tiles of all parts of a pass.
#include "kernels/attention/portable/products.cuh"
#include "kernels/base/cuda_launch.cuh"

namespace longstride::kernels::cuda::portable {
namespace {

constexpr TileShape tile_shape{64, 64};

template <class T, int Key, int Value>
constexpr std::size_t shared_bytes() {
  return sizeof(T) * (tile_shape.queries * Key + 2 * tile_shape.keys * (Key + Value));
}

// A lane's state of the softmax of its two rows, with scores in base 2.
struct Softmax {
  float top[2] = {-INFINITY, -INFINITY};  // largest score
  float sum[2] = {0, 0};                  // this lane's share of the denominator, relative to top

  // Turns scores into probabilities relative to the largest so far, and rescales `acc` to it.
  template <int Scores, int Values>
  __device__ void add(float (&s)[Scores][4], float (&acc)[Values][4]) {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      float largest = top[upper];
#pragma unroll
      for (int j = 0; j < Scores; ++j) largest = fmaxf(largest, fmaxf(s[j][2 * upper], s[j][2 * upper + 1]));
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 2));
      const float base = largest == -INFINITY ? 0.0f : largest;  // -infinity minus itself is NaN
      const float shrink = exp2_approx(top[upper] - base);
      top[upper] = largest;
      float share = 0;
#pragma unroll
      for (int j = 0; j < Scores; ++j)
#pragma unroll
        for (int e = 2 * upper; e < 2 * upper + 2; ++e) share += s[j][e] = exp2_approx(s[j][e] - base);
      sum[upper] = sum[upper] * shrink + share;
#pragma unroll
      for (int j = 0; j < Values; ++j)
#pragma unroll
        for (int e = 2 * upper; e < 2 * upper + 2; ++e) acc[j][e] *= shrink;
    }
  }
};

template <int Scores>
__device__ inline void scale_scores(float (&s)[Scores][4], float scale, bool masked, const TwoIntervals& in,
                                    std::int32_t first_key) {
  const std::int32_t first = first_key + static_cast<std::int32_t>(threadIdx.x % 4) * 2;
#pragma unroll
  for (int j = 0; j < Scores; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const std::int32_t key = first + 8 * j + e % 2;
      const bool allowed = !masked || (key >= in.low[e / 2] && key < in.high[e / 2]);
      s[j][e] = allowed ? s[j][e] * scale : -INFINITY;
    }
}

template <class T, int Key, int Value>
__global__ __launch_bounds__(block_threads) void forward_kernel(const __grid_constant__ Call call) {
  const PassArgs& pass = pass_of(call.group);
  const WorkUnit unit = unit_of(call.group, tiles_in(pass.queries.length, tile_shape.queries), pass, true);
  if (unit.tile < 0) return;
  const EntryPositions queries(rows_within(pass.queries, unit.residue, call.n_q));
  const std::int32_t begin = unit.tile * tile_shape.queries;
  if (begin >= queries.set.length) return;
  KeyTiles tiles(call, unit, queries.set, tile_shape);
  if (pass.adds && !tiles.more()) return;

  extern __shared__ __align__(128) unsigned char shared[];
  const Tile<T, Key> q{reinterpret_cast<T*>(shared)};
  T* const stages = q.data + tile_shape.queries * Key;
  const auto k_of = [&](int stage) { return Tile<T, Key>{stages + stage * tile_shape.keys * (Key + Value)}; };
  const auto v_of = [&](int stage) { return Tile<T, Value>{k_of(stage).data + tile_shape.keys * Key}; };
  const HeadRows<const T> k_rows(call.k, unit), v_rows(call.v, unit);
  const auto load_keys = [&](const Step& step, int stage) {
    const EntryPositions keys(rows_within(pass.part[step.part].keys, unit.residue, call.n_k));
    load_tile<tile_shape.keys>(k_of(stage), k_rows, call.key_size, keys, step.begin, call.aligned);
    load_tile<tile_shape.keys>(v_of(stage), v_rows, call.value_size, keys, step.begin, call.aligned);
  };
  load_tile<tile_shape.queries>(q, HeadRows<const T>(call.q, unit), call.key_size, queries, begin, call.aligned);
  if (tiles.more()) load_keys(tiles.step(), 0);
  copies_commit();

  const int warp_row = static_cast<int>(threadIdx.x / warp_threads) * 16, lane = threadIdx.x % warp_threads;
  const HeadRows<T> o_rows(call.o, unit);
  float* const lse = call.lse + lse_row(call, unit);
  float acc[Value / 8][4] = {};
  Softmax softmax;
  if (pass.adds) {  // resumes from a softmax whose largest score is lse and whose sum is 1
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const std::int32_t entry = begin + warp_row + lane / 4 + 8 * upper;
      if (entry >= queries.set.length) continue;
      const std::int32_t position = queries.at(entry);
      softmax.top[upper] = lse[position] * log2_e;
      softmax.sum[upper] = lane % 4 == 0 && softmax.top[upper] > -INFINITY ? 1.0f : 0.0f;
      add_row(acc, upper, o_rows.at(position), call.value_size, call.aligned);
    }
  }
  TwoIntervals intervals{};
  std::int32_t part = -1;
  const float scale = call.scale * log2_e;
  for (int stage = 0; tiles.more(); stage ^= 1) {
    const Step now = tiles.step();
    tiles.advance();
    copies_wait<0>();
    __syncthreads();
    if (tiles.more()) load_keys(tiles.step(), stage ^ 1);
    copies_commit();
    if (now.part != part) {
      part = now.part;
      intervals = intervals_of(Seen(call, unit, pass.part[part]), queries.set, begin + warp_row);
    }
    float s[tile_shape.keys / 8][4];
    multiply_transposed<T, tile_shape.keys>(s, q, warp_row, k_of(stage));
    scale_scores(s, scale, now.masked, intervals, now.begin);
    softmax.add(s, acc);
    multiply_probabilities<T, tile_shape.keys>(acc, s, v_of(stage));
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
    const std::int32_t entry = begin + warp_row + lane / 4 + 8 * upper;
    if (lane % 4 == 0 && entry < queries.set.length)
      lse[queries.at(entry)] = sum > 0 ? (softmax.top[upper] + log2f(sum)) * ln_2 : -INFINITY;
  }
  store_rows(acc, Tile<T, Value>{stages + warp_row * Value}, o_rows, call.value_size, queries, begin + warp_row,
             call.aligned);
}

}  // namespace

template <class T>
void forward(const Call& call, const Launch& launch) {
  with_head_sizes(call, [&](auto sizes) {
    constexpr int key = decltype(sizes)::key, value = decltype(sizes)::value;
    constexpr std::size_t bytes = shared_bytes<T, key, value>();
    allow_shared(forward_kernel<T, key, value>, bytes);
    run("attention forward", forward_kernel<T, key, value>,
        {grid_of(call, tile_shape.queries, Side::queries), block_threads, bytes}, launch, call);
  });
}
template void forward<__nv_bfloat16>(const Call&, const Launch&);
template void forward<__half>(const Call&, const Launch&);

}  // namespace longstride::kernels::cuda::portable
