// o and lse of a query tile: an online softmax over the key tiles of all parts of a pass.
#include "kernels/attention/portable/online_softmax.cuh"
#include "kernels/attention/portable/products.cuh"
#include "kernels/attention/term/distance_tiles.cuh"
#include "kernels/attention/term/labels.cuh"
#include "kernels/base/cuda_launch.cuh"

namespace longstride::kernels::cuda::portable {
namespace {

template <class Term, int Key, int Value>
constexpr TileShape tile_shape{64 * Term::strips(Key, Value), 64};

template <class Term, class T, int Key, int Value>
using Own = typename TilesOf<Term, T, Key, tile_shape<Term, Key, Value>.queries, 1, false>::Type;

template <class Term, class T, int Key, int Value>
constexpr std::size_t shared_bytes() {
  constexpr TileShape tile = tile_shape<Term, Key, Value>;
  return sizeof(T) * (tile.queries * Key + 2 * tile.keys * (Key + Value) + Own<Term, T, Key, Value>::elements);
}

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

template <class Term, class T, int Key, int Value>
__global__ __launch_bounds__(block_threads) void forward_kernel(const __grid_constant__ typename Term::Call call) {
  constexpr TileShape tile = tile_shape<Term, Key, Value>;
  constexpr int strips = tile.queries / 64;
  const Term term(call, Side::queries, tile.queries);
  const std::int32_t begin = term.unit.tile * tile.queries;
  if (begin < 0 || begin >= term.queries.length) return;
  const EntryPositions queries(term.queries);
  KeyTiles<Term> tiles(term, tile);
  if (term.adds() && !tiles.more()) return;

  extern __shared__ __align__(128) char memory[];
  const Tile<T, Key> q{reinterpret_cast<T*>(memory)};
  T* const stages = q.data + tile.queries * Key;
  const auto k_of = [&](int stage) { return Tile<T, Key>{stages + stage * tile.keys * (Key + Value)}; };
  const auto v_of = [&](int stage) { return Tile<T, Value>{k_of(stage).data + tile.keys * Key}; };
  const Own<Term, T, Key, Value> own(term, stages + 2 * tile.keys * (Key + Value));
  const HeadRows<const T> k_rows(call.k, term.unit.of_keys()), v_rows(call.v, term.unit.of_keys());
  const auto load_keys = [&](const Step& step, int stage) {
    const EntryPositions keys(term.seen(step.part).keys);
    load_tile<tile.keys>(k_of(stage), k_rows, call.key_size, keys, step.begin, call.aligned);
    load_tile<tile.keys>(v_of(stage), v_rows, call.value_size, keys, step.begin, call.aligned);
    own.load_piece(begin, step.begin, 0);
  };
  load_tile<tile.queries>(q, HeadRows<const T>(call.q, term.unit), call.key_size, queries, begin, call.aligned);
  own.load_queries(begin, 0);
  if (tiles.more()) {
    for (int u = 1; u <= strips; ++u) own.load_piece(begin, tiles.step().begin, u);
    load_keys(tiles.step(), 0);
  }
  copies_commit();

  const int warp_row = static_cast<int>(threadIdx.x / warp_threads) * 16 * strips, lane = threadIdx.x % warp_threads;
  const HeadRows<T> o_rows(call.o, term.unit);
  float* const lse = call.lse + lse_row(call, term.unit);
  float acc[strips][Value / 8][4] = {};
  Softmax softmax[strips];
  if (term.adds()) {  // resumes from a softmax whose largest score is lse and whose sum is 1
#pragma unroll
    for (int upper = 0; upper < 2 * strips; ++upper) {
      const std::int32_t entry = begin + warp_row + lane / 4 + 8 * upper;
      if (entry >= queries.set.length) continue;
      const std::int32_t position = queries.at(entry);
      Softmax& of_strip = softmax[upper / 2];
      of_strip.top[upper % 2] = lse[position] * log2_e;
      of_strip.sum[upper % 2] = lane % 4 == 0 && of_strip.top[upper % 2] > -INFINITY ? 1.0f : 0.0f;
      add_row(acc[upper / 2], upper % 2, o_rows.at(position), call.value_size, call.aligned);
    }
  }
  TwoIntervals intervals[strips] = {};
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
#pragma unroll
      for (int u = 0; u < strips; ++u)
        intervals[u] = intervals_of(term.seen(part), term.queries, begin + warp_row + 16 * u);
    }
    float s[strips][tile.keys / 8][4];
    if constexpr (Term::weighs) {
      const auto pairs = own.pairs(begin, now.begin);
      if (own.unseen(pairs, warp_row)) continue;
      multiply_strips<T, tile.keys>(s, q, warp_row, k_of(stage));
      own.add_scores(s, 0, warp_row, begin, now.begin);
#pragma unroll
      for (int u = 0; u < strips; ++u) {
        const int row = warp_row + 16 * u;
        scale_scores(s[u], scale, now.masked, intervals[u], now.begin);
        softmax[u].add(s[u], acc[u], [&](int j, int e) { return pairs.weight(term.head, row, j, e); });
        own.drop(s[u], begin + row, now.begin);
      }
    } else {
      multiply_strips<T, tile.keys>(s, q, warp_row, k_of(stage));
#pragma unroll
      for (int u = 0; u < strips; ++u) {
        if constexpr (Term::given) own.add_scores(s[u], now, begin + warp_row + 16 * u, intervals[u]);
        scale_scores(s[u], scale, now.masked, intervals[u], now.begin);
        softmax[u].add(s[u], acc[u], [](int, int) { return 1.0f; });
      }
    }
    multiply_probability_strips<T, tile.keys>(acc, s, v_of(stage));
  }

  copies_wait<0>();
  __syncthreads();  // the stages are free: results are stored through them
#pragma unroll
  for (int upper = 0; upper < 2 * strips; ++upper) {
    const Softmax& of_strip = softmax[upper / 2];
    float sum = of_strip.sum[upper % 2];
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
    float share = sum > 0 ? 1 / sum : 0.0f;
    float of_row = sum > 0 ? (of_strip.top[upper % 2] + log2f(sum)) * ln_2 : -INFINITY;
    if (call.sink != nullptr && !term.adds()) join_sink(call.sink[term.unit.head], share, of_row);
#pragma unroll
    for (int j = 0; j < Value / 8; ++j) {
      acc[upper / 2][j][upper % 2 * 2] *= share;
      acc[upper / 2][j][upper % 2 * 2 + 1] *= share;
    }
    const std::int32_t entry = begin + warp_row + lane / 4 + 8 * upper;
    if (lane % 4 == 0 && entry < queries.set.length) lse[queries.at(entry)] = of_row;
  }
#pragma unroll
  for (int u = 0; u < strips; ++u)
    store_rows(acc[u], Tile<T, Value>{stages + (warp_row + 16 * u) * Value}, o_rows, call.value_size, queries,
               begin + warp_row + 16 * u, call.aligned);
}

template <class T, class Term>
void launch_forward(const typename Term::Call& call, const Launch& launch) {
  with_head_sizes<Term::few_sizes>(call.key_size, call.value_size, [&](auto sizes) {
    constexpr int key = decltype(sizes)::key, value = decltype(sizes)::value;
    constexpr std::size_t bytes = shared_bytes<Term, T, key, value>();
    allow_shared(forward_kernel<Term, T, key, value>, bytes);
    run("attention forward", forward_kernel<Term, T, key, value>,
        {Term::grid(call, Side::queries, tile_shape<Term, key, value>.queries), block_threads, bytes}, launch, call);
  });
}

}  // namespace

template <class T>
void forward(const PlanCall& call, const Launch& launch) {
  call.lists.given() ? launch_forward<T, ListedTerm>(call, launch) : launch_forward<T, NoTerm>(call, launch);
}
template <class T>
void forward(const distance::PortableCall& call, const Launch& launch) {
  launch_forward<T, DistanceTerm>(call, launch);
}
template <class T>
void forward(const LabelsCall& call, const Launch& launch) {
  launch_forward<T, LabelsTerm>(call, launch);
}
LONGSTRIDE_FOR_TERMS(forward)

}  // namespace longstride::kernels::cuda::portable
