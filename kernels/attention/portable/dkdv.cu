// dk and dv of a key tile of a part: P^T and dS^T over the query tiles that may attend to it.
#include "kernels/attention/portable/products.cuh"
#include "kernels/attention/term/distance_tiles.cuh"
#include "kernels/attention/term/labels.cuh"
#include "kernels/base/cuda_launch.cuh"

namespace longstride::kernels::cuda::portable {
namespace {

template <class Term, int Key, int Value>
constexpr TileShape tile_shape{Term::queries_of_keys(Key, Value), 64};

// The data of a tile of queries besides its rows of q and dO.
template <int Queries>
struct QueryScalars {
  float lse[Queries], delta[Queries];
  std::int32_t low[Queries], high[Queries];
};

template <class Term, class T, int Key, int Value>
using Own = typename TilesOf<Term, T, Key, tile_shape<Term, Key, Value>.queries, 2, false>::Type;

// P and dS of a pair of tiles, where a term asks for scores whose rows are queries.
template <class Term>
constexpr int pair_elements = Term::weighs ? 2 * 64 * 64 : 0;

template <class Term, class T, int Key, int Value>
constexpr std::size_t shared_bytes() {
  constexpr TileShape tile = tile_shape<Term, Key, Value>;
  constexpr int of_tiles = (tile.keys + 2 * tile.queries) * (Key + Value);
  constexpr int of_term = Own<Term, T, Key, Value>::elements + pair_elements<Term>;
  return sizeof(T) * (of_tiles + of_term) + 2 * sizeof(QueryScalars<tile.queries>);
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

// Stores a warp's 16 x 64 accumulator, rounded to T, as rows of a tile from `row` on.
template <class T>
__device__ inline void store_scores(Tile<T, 64> tile, int row, const float (&s)[8][4]) {
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; e += 2)
      *reinterpret_cast<std::uint32_t*>(tile.chunk(row + this_lane() / 4 + e / 2 * 8, j) + this_lane() % 4 * 2) =
          pack<T>(s[j][e], s[j][e + 1]);
}

// d (16 keys x Columns) += columns [first, +16) of p, transposed, times b (queries x Columns).
template <class T, int Columns>
__device__ inline void multiply_columns(float (&d)[Columns / 8][4], Tile<T, 64> p, int first, Tile<T, Columns> b) {
  const int lane = this_lane();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    std::uint32_t left[1][4];
    load_matrices_transposed(left[0], p.chunk(16 * k + lane % 8 + lane / 16 * 8, first / 8 + lane / 8 % 2));
    multiply_fragment<T>(reinterpret_cast<float(&)[1][Columns / 8][4]>(d), left, b, 16 * k);
  }
}

template <class Term, class T, int Key, int Value>
__global__ __launch_bounds__(block_threads) void dkdv_kernel(const __grid_constant__ typename Term::Call call) {
  constexpr TileShape tile = tile_shape<Term, Key, Value>;
  const Term term(call, Side::keys, tile.keys);
  const auto seen = term.seen(0);
  const RowSet queries = term.queries;
  const EntryPositions keys(seen.keys);
  const std::int32_t begin = term.unit.tile * tile.keys;
  if (begin >= keys.set.length) return;
  __shared__ std::int32_t found[4];
  TileWalk tiles = query_tiles_by_block(term, seen, tile, found);
  if (term.adds() && !tiles.more()) return;

  extern __shared__ __align__(128) char memory[];
  const Tile<T, Key> k{reinterpret_cast<T*>(memory)};
  const Tile<T, Value> v{k.data + tile.keys * Key};
  T* const stages = v.data + tile.keys * Value;
  const auto q_of = [&](int stage) { return Tile<T, Key>{stages + stage * tile.queries * (Key + Value)}; };
  const auto dout_of = [&](int stage) { return Tile<T, Value>{q_of(stage).data + tile.queries * Key}; };
  T* const of_term = stages + 2 * tile.queries * (Key + Value);
  const Own<Term, T, Key, Value> own(term, of_term);
  T* const pairs = of_term + Own<Term, T, Key, Value>::elements;
  auto* const scalars = reinterpret_cast<QueryScalars<tile.queries>*>(pairs + pair_elements<Term>);
  const EntryPositions query_positions(queries);
  const HeadRows<const T> q_rows(call.q, term.unit), dout_rows(call.dout, term.unit);
  const std::int64_t row = lse_row(call, term.unit);
  const auto load_queries = [&](int stage) {
    const std::int32_t first = tiles.tile() * tile.queries;
    load_tile<tile.queries>(q_of(stage), q_rows, call.key_size, query_positions, first, call.aligned);
    load_tile<tile.queries>(dout_of(stage), dout_rows, call.value_size, query_positions, first, call.aligned);
    own.load_queries(first, stage);
    own.load_piece(first, begin, 1);
    const auto x = static_cast<std::int32_t>(threadIdx.x);
    if (x >= tile.queries) return;
    const bool valid = first + x < queries.length;  // rows beyond the end are zero and add nothing
    const std::int32_t position = valid ? query_positions.at(first + x) : 0;
    copy_async_4(&scalars[stage].lse[x], call.lse + row + position, valid);
    copy_async_4(&scalars[stage].delta[x], call.delta + row + position, valid);
    if (tiles.full() && !own.reads_ends()) return;
    const Interval in = valid ? seen.interval(position) : Interval{};
    scalars[stage].low[x] = in.begin;
    scalars[stage].high[x] = in.end;
  };
  load_tile<tile.keys>(k, HeadRows<const T>(call.k, term.unit.of_keys()), call.key_size, keys, begin, call.aligned);
  load_tile<tile.keys>(v, HeadRows<const T>(call.v, term.unit.of_keys()), call.value_size, keys, begin, call.aligned);
  if (tiles.more()) {
    own.load_piece(tiles.tile() * tile.queries, begin, 0);
    load_queries(0);
  }
  copies_commit();

  const int warp_row = static_cast<int>(threadIdx.x / warp_threads) * 16, lane = threadIdx.x % warp_threads;
  float dk[Key / 8][4] = {}, dv[Value / 8][4] = {};
  const float scale = call.scale * log2_e;
  for (int stage = 0; tiles.more(); stage ^= 1) {
    const std::int32_t first = tiles.tile() * tile.queries;
    const bool masked = !tiles.full();
    tiles.advance();
    copies_wait<0>();
    __syncthreads();
    if (tiles.more()) load_queries(stage ^ 1);
    copies_commit();
    if constexpr (Term::weighs) {
      // A warp has sixteen queries' scores, but gradients of sixteen keys: P and dS pass through shared memory.
      const QueryScalars<tile.queries>& query = scalars[stage];
      float lse[2], delta[2];
      TwoIntervals intervals;
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        const int x = warp_row + lane / 4 + 8 * upper;
        lse[upper] = query.lse[x] * log2_e;
        delta[upper] = query.delta[x];
        intervals.low[upper] = query.low[x];
        intervals.high[upper] = query.high[x];
      }
      const Tile<T, 64> probabilities{pairs}, gradients{pairs + 64 * 64};
      float s[1][8][4], dp[8][4];
      multiply_strips<T, 64>(s, q_of(stage), warp_row, k);
      own.add_scores(s, stage, warp_row, first, begin);
      multiply_transposed<T, 64>(dp, dout_of(stage), warp_row, v);
      own.to_gradients(s[0], dp, lse, delta, masked, intervals, warp_row, first, begin);
      store_scores(probabilities, warp_row, s[0]);
      store_scores(gradients, warp_row, dp);
      __syncthreads();
      multiply_columns(dv, probabilities, warp_row, dout_of(stage));
      multiply_columns(dk, gradients, warp_row, q_of(stage));
    } else {
      float s[tile.queries / 8][4], dp[tile.queries / 8][4];
      multiply_transposed<T, tile.queries>(s, k, warp_row, q_of(stage));
      if constexpr (Term::given) own.add_transposed(s, begin + warp_row, first, scalars[stage].high);
      multiply_transposed<T, tile.queries>(dp, v, warp_row, dout_of(stage));
      to_score_gradients<tile.queries>(s, dp, scale, scalars[stage], masked, begin + warp_row);
      multiply_probabilities<T, tile.queries>(dv, s, dout_of(stage));
      multiply_probabilities<T, tile.queries>(dk, dp, q_of(stage));
    }
  }

  copies_wait<0>();
  __syncthreads();  // k and v are not needed any more: results are stored through their tiles
  const HeadRows<T> dk_rows(call.dk, term.unit), dv_rows(call.dv, term.unit);
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
#pragma unroll
    for (int j = 0; j < Key / 8; ++j) {
      dk[j][2 * upper] *= call.scale;
      dk[j][2 * upper + 1] *= call.scale;
    }
    const std::int32_t entry = begin + warp_row + lane / 4 + 8 * upper;
    if (!term.adds() || entry >= keys.set.length) continue;
    add_row(dk, upper, dk_rows.at(keys.at(entry)), call.key_size, call.aligned);
    add_row(dv, upper, dv_rows.at(keys.at(entry)), call.value_size, call.aligned);
  }
  store_rows(dk, Tile<T, Key>{k.data + warp_row * Key}, dk_rows, call.key_size, keys, begin + warp_row, call.aligned);
  store_rows(dv, Tile<T, Value>{v.data + warp_row * Value}, dv_rows, call.value_size, keys, begin + warp_row,
             call.aligned);
}

template <class T, class Term>
void launch_dkdv(const typename Term::Call& call, const Launch& launch) {
  with_head_sizes<Term::few_sizes>(call.key_size, call.value_size, [&](auto sizes) {
    constexpr int key = decltype(sizes)::key, value = decltype(sizes)::value;
    constexpr std::size_t bytes = shared_bytes<Term, T, key, value>();
    allow_shared(dkdv_kernel<Term, T, key, value>, bytes);
    run("attention dkdv", dkdv_kernel<Term, T, key, value>,
        {Term::grid(call, Side::keys, tile_shape<Term, key, value>.keys), block_threads, bytes}, launch, call);
  });
}

}  // namespace

template <class T>
void dkdv(const PlanCall& call, const Launch& launch) {
  call.lists.given() ? launch_dkdv<T, ListedTerm>(call, launch) : launch_dkdv<T, NoTerm>(call, launch);
}
template <class T>
void dkdv(const distance::PortableCall& call, const Launch& launch) {
  launch_dkdv<T, DistanceTerm>(call, launch);
}
template <class T>
void dkdv(const LabelsCall& call, const Launch& launch) {
  launch_dkdv<T, LabelsTerm>(call, launch);
}
LONGSTRIDE_FOR_TERMS(dkdv)

}  // namespace longstride::kernels::cuda::portable
