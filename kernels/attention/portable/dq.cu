// dq of a query tile: recomputes P and dS = P (dO V^T - D) over the key tiles of all parts of a pass.
#include "kernels/attention/portable/products.cuh"
#include "kernels/attention/term/distance_tiles.cuh"
#include "kernels/attention/term/labels.cuh"
#include "kernels/base/cuda_launch.cuh"

namespace longstride::kernels::cuda::portable {
namespace {

constexpr TileShape tile_shape{64, 64};

template <class Term, class T, int Key>
using Own = typename TilesOf<Term, T, Key, tile_shape.queries, 1, true>::Type;

template <class Term, class T, int Key, int Value>
constexpr std::size_t shared_bytes() {
  return sizeof(T) * ((tile_shape.queries + 2 * tile_shape.keys) * (Key + Value) + Own<Term, T, Key>::elements);
}

// Turns scores `s` into P and dP `dp` into dS. lse is in base 2.
template <int Scores>
__device__ inline void to_score_gradients(const float (&s)[Scores][4], float (&dp)[Scores][4], float scale,
                                          const float (&lse)[2], const float (&delta)[2], bool masked,
                                          const TwoIntervals& in, std::int32_t first_key) {
  const std::int32_t first = first_key + static_cast<std::int32_t>(threadIdx.x % 4) * 2;
#pragma unroll
  for (int j = 0; j < Scores; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const std::int32_t key = first + 8 * j + e % 2;
      const bool allowed = !masked || (key >= in.low[e / 2] && key < in.high[e / 2]);
      const float p = exp2_approx(fmaf(s[j][e], scale, -lse[e / 2]));
      dp[j][e] = allowed ? p * (dp[j][e] - delta[e / 2]) : 0.0f;
    }
}

template <class Term, class T, int Key, int Value>
__global__ __launch_bounds__(block_threads) void dq_kernel(const __grid_constant__ typename Term::Call call) {
  const Term term(call, Side::queries, tile_shape.queries);
  const std::int32_t begin = term.unit.tile * tile_shape.queries;
  if (begin < 0 || begin >= term.queries.length) {
    if constexpr (Term::weighs) term.clear_sums();
    return;
  }
  const EntryPositions queries(term.queries);
  KeyTiles<Term> tiles(term, tile_shape);
  if (term.adds() && !tiles.more()) return;

  extern __shared__ __align__(128) char memory[];
  const Tile<T, Key> q{reinterpret_cast<T*>(memory)};
  const Tile<T, Value> dout{q.data + tile_shape.queries * Key};
  T* const stages = dout.data + tile_shape.queries * Value;
  const auto k_of = [&](int stage) { return Tile<T, Key>{stages + stage * tile_shape.keys * (Key + Value)}; };
  const auto v_of = [&](int stage) { return Tile<T, Value>{k_of(stage).data + tile_shape.keys * Key}; };
  const Own<Term, T, Key> own(term, stages + 2 * tile_shape.keys * (Key + Value));
  const HeadRows<const T> k_rows(call.k, term.unit.of_keys()), v_rows(call.v, term.unit.of_keys());
  const auto load_keys = [&](const Step& step, int stage) {
    const EntryPositions keys(term.seen(step.part).keys);
    load_tile<tile_shape.keys>(k_of(stage), k_rows, call.key_size, keys, step.begin, call.aligned);
    load_tile<tile_shape.keys>(v_of(stage), v_rows, call.value_size, keys, step.begin, call.aligned);
    own.load_piece(begin, step.begin, 0);
  };
  load_tile<tile_shape.queries>(q, HeadRows<const T>(call.q, term.unit), call.key_size, queries, begin, call.aligned);
  load_tile<tile_shape.queries>(dout, HeadRows<const T>(call.dout, term.unit), call.value_size, queries, begin,
                                call.aligned);
  own.load_queries(begin, 0);
  if (tiles.more()) {
    own.load_piece(begin, tiles.step().begin, 1);
    load_keys(tiles.step(), 0);
  }
  copies_commit();

  const int warp_row = static_cast<int>(threadIdx.x / warp_threads) * 16, lane = threadIdx.x % warp_threads;
  const std::int64_t row = lse_row(call, term.unit);
  float lse[2] = {INFINITY, INFINITY}, delta[2] = {0, 0};
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
    const std::int32_t entry = begin + warp_row + lane / 4 + 8 * upper;
    if (entry >= queries.set.length) continue;
    const std::int32_t position = queries.at(entry);
    lse[upper] = call.lse[row + position] * log2_e;
    delta[upper] = call.delta[row + position];
  }
  float acc[Key / 8][4] = {}, of_term[Term::weighs ? Key / 8 : 1][4] = {}, span = 0;
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
      intervals = intervals_of(term.seen(part), term.queries, begin + warp_row);
    }
    float s[1][tile_shape.keys / 8][4], dp[tile_shape.keys / 8][4];
    multiply_strips<T, tile_shape.keys>(s, q, warp_row, k_of(stage));
    if constexpr (Term::weighs)
      own.add_scores(s, 0, warp_row, begin, now.begin);
    else if constexpr (Term::given)
      own.add_scores(s[0], now, begin + warp_row, intervals);
    multiply_transposed<T, tile_shape.keys>(dp, dout, warp_row, v_of(stage));
    if constexpr (Term::weighs)
      span += own.to_gradients(s[0], dp, lse, delta, now.masked, intervals, warp_row, begin, now.begin);
    else
      to_score_gradients(s[0], dp, scale, lse, delta, now.masked, intervals, now.begin);
    multiply_probabilities<T, tile_shape.keys>(acc, dp, k_of(stage));
    if constexpr (Term::weighs)
      own.add_gradients(of_term, dp, begin, now.begin);
    else if constexpr (Term::given)
      own.add_gradients(dp, now, begin + warp_row, intervals);
  }

  copies_wait<0>();
  __syncthreads();  // the stages are free: results are stored through them
  if constexpr (Term::weighs)
    own.finish(acc, of_term, span);
  else if constexpr (Term::given)
    own.finish(acc, begin + warp_row);
  const HeadRows<T> dq_rows(call.dq, term.unit);
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
#pragma unroll
    for (int j = 0; j < Key / 8; ++j) {
      acc[j][2 * upper] *= call.scale;
      acc[j][2 * upper + 1] *= call.scale;
    }
    const std::int32_t entry = begin + warp_row + lane / 4 + 8 * upper;
    if (term.adds() && entry < queries.set.length)
      add_row(acc, upper, dq_rows.at(queries.at(entry)), call.key_size, call.aligned);
  }
  store_rows(acc, Tile<T, Key>{stages + warp_row * Key}, dq_rows, call.key_size, queries, begin + warp_row,
             call.aligned);
}

template <class T, class Term>
void launch_dq(const typename Term::Call& call, const Launch& launch) {
  with_head_sizes<Term::few_sizes>(call.key_size, call.value_size, [&](auto sizes) {
    constexpr int key = decltype(sizes)::key, value = decltype(sizes)::value;
    constexpr std::size_t bytes = shared_bytes<Term, T, key, value>();
    allow_shared(dq_kernel<Term, T, key, value>, bytes);
    run("attention dq", dq_kernel<Term, T, key, value>,
        {Term::grid(call, Side::queries, tile_shape.queries), block_threads, bytes}, launch, call);
  });
}

}  // namespace

template <class T>
void dq(const PlanCall& call, const Launch& launch) {
  call.lists.given() ? launch_dq<T, ListedTerm>(call, launch) : launch_dq<T, NoTerm>(call, launch);
}
template <class T>
void dq(const distance::PortableCall& call, const Launch& launch) {
  launch_dq<T, DistanceTerm>(call, launch);
}
template <class T>
void dq(const LabelsCall& call, const Launch& launch) {
  launch_dq<T, LabelsTerm>(call, launch);
}
LONGSTRIDE_FOR_TERMS(dq)

}  // namespace longstride::kernels::cuda::portable
