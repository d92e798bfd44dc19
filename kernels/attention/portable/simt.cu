// f32 attention, as a check: the same three loops as the 16-bit kernels, in plain fused multiply-adds.
//
// Tiles have 32 rows on both sides. In scores, a warp has eight rows and a lane one column; in products with the
// scores, which pass through shared memory, a lane has every 32nd column of the rows' size. What a term adds to a pair
// is read from global memory.
#include "kernels/attention/sink.h"
#include "kernels/attention/term/distance_pairs.cuh"
#include "kernels/attention/term/labels_pairs.cuh"
#include "kernels/base/cuda_launch.cuh"

namespace longstride::kernels::cuda::portable {
namespace {

constexpr int rows = plain_rows, warp_rows = 8;
constexpr TileShape tile_shape{rows, rows};

// Rows of f32 in shared memory, zero up to a multiple of four; the odd number of 16-byte chunks keeps the lanes of a
// column in different banks.
struct FloatTile {
  float* data;
  int stride;

  __device__ float* row(int r) const { return data + r * stride; }
};
__host__ __device__ constexpr int stride_of(int size) { return ((size + 3) / 4 | 1) * 4; }
constexpr std::size_t tile_floats(int size) { return static_cast<std::size_t>(rows) * stride_of(size); }

__device__ inline int lane_of() { return static_cast<int>(threadIdx.x % warp_threads); }
__device__ inline int first_row_of() { return static_cast<int>(threadIdx.x / warp_threads) * warp_rows; }

__device__ inline void load_rows(const FloatTile& tile, const HeadRows<const float>& from, int size,
                                 const EntryPositions& positions, std::int32_t begin) {
  for (int r = first_row_of(); r < first_row_of() + warp_rows; ++r) {
    const bool valid = begin + r < positions.set.length;
    const float* row = valid ? from.at(positions.at(begin + r)) : nullptr;
    for (int d = lane_of(); d < tile.stride; d += warp_threads) tile.row(r)[d] = valid && d < size ? row[d] : 0.0f;
  }
}

// s[r] = row first_row_of() + r of a times row lane of b.
__device__ inline void multiply_rows(float (&s)[warp_rows], const FloatTile& a, const FloatTile& b) {
  const float* right = b.row(lane_of());
#pragma unroll
  for (int r = 0; r < warp_rows; ++r) s[r] = 0;
  for (int d = 0; d < a.stride; d += 4) {
    const float4 y = *reinterpret_cast<const float4*>(right + d);
#pragma unroll
    for (int r = 0; r < warp_rows; ++r) {
      const float4 x = *reinterpret_cast<const float4*>(a.row(first_row_of() + r) + d);
      s[r] = fmaf(x.x, y.x, fmaf(x.y, y.y, fmaf(x.z, y.z, fmaf(x.w, y.w, s[r]))));
    }
  }
}

using Accumulator = float[warp_rows][plain_vectors];

// acc += p b, p being this warp's rows x 32 in shared memory.
__device__ inline void add_product(Accumulator& acc, const float* p, const FloatTile& b, int size) {
  for (int k = 0; k < rows; ++k)
#pragma unroll
    for (int x = 0; x < plain_vectors; ++x) {
      const int column = x * warp_threads + lane_of();
      if (column >= size) continue;
      const float y = b.row(k)[column];
#pragma unroll
      for (int r = 0; r < warp_rows; ++r) acc[r][x] = fmaf(p[r * rows + k], y, acc[r][x]);
    }
}

// Stores this warp's scores for add_product.
__device__ inline void spread(float* p, const float (&s)[warp_rows]) {
  __syncwarp();
#pragma unroll
  for (int r = 0; r < warp_rows; ++r) p[r * rows + lane_of()] = s[r];
  __syncwarp();
}

// Stores the rows times `scale`, or adds them to memory.
__device__ inline void store_rows(const Accumulator& acc, const HeadRows<float>& to, int size,
                                  const EntryPositions& positions, std::int32_t begin, float scale, bool adds) {
#pragma unroll
  for (int r = 0; r < warp_rows; ++r) {
    const std::int32_t entry = begin + first_row_of() + r;
    if (entry >= positions.set.length) continue;
    float* row = to.at(positions.at(entry));
#pragma unroll
    for (int x = 0; x < plain_vectors; ++x) {
      const int column = x * warp_threads + lane_of();
      if (column < size) row[column] = adds ? fmaf(scale, acc[r][x], row[column]) : scale * acc[r][x];
    }
  }
}

__device__ inline float warp_max(float x) {
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  return x;
}

// The intervals of this warp's rows, one per lane.
template <class Seen>
__device__ inline Interval own_interval(const Seen& seen, const RowSet& queries, std::int32_t begin) {
  const std::int32_t entry = begin + first_row_of() + lane_of() % warp_rows;
  return entry < queries.length ? seen.interval(queries.position(entry)) : Interval{};
}
__device__ inline bool holds(const Interval& own, int r, std::int32_t key) {
  // Every lane must take part in both shuffles, whatever the result of the first.
  const std::int32_t first = __shfl_sync(0xFFFFFFFFu, own.begin, r), last = __shfl_sync(0xFFFFFFFFu, own.end, r);
  return key >= first && key < last;
}

template <class Term>
__global__ __launch_bounds__(block_threads) void forward_f32_kernel(const __grid_constant__ typename Term::Call call) {
  const Term term(call, Side::queries, rows);
  const WorkUnit& unit = term.unit;
  const std::int32_t begin = unit.tile * rows;
  if (begin < 0 || begin >= term.queries.length) return;
  const EntryPositions queries(term.queries);
  KeyTiles<Term> tiles(term, tile_shape);
  if (term.adds() && !tiles.more()) return;
  const PairsOf<Term> pairs(term);

  extern __shared__ __align__(16) char memory[];
  const int key_stride = stride_of(call.key_size), value_stride = stride_of(call.value_size);
  const FloatTile q{reinterpret_cast<float*>(memory), key_stride}, k{q.row(rows), key_stride},
      v{k.row(rows), value_stride};
  float* const p = v.row(rows) + first_row_of() * rows;
  load_rows(q, HeadRows<const float>(call.q, unit), call.key_size, queries, begin);

  const HeadRows<float> o_rows(call.o, unit);
  float* const lse = call.lse + lse_row(call, unit);
  float top[warp_rows], sum[warp_rows];
  Accumulator acc = {};
#pragma unroll
  for (int r = 0; r < warp_rows; ++r) {
    const std::int32_t entry = begin + first_row_of() + r;
    top[r] = -INFINITY;
    if (term.adds() && entry < queries.set.length) {
      const std::int32_t position = queries.at(entry);
      top[r] = lse[position];
#pragma unroll
      for (int x = 0; x < plain_vectors; ++x) {
        const int column = x * warp_threads + lane_of();
        if (column < call.value_size) acc[r][x] = o_rows.at(position)[column];
      }
    }
    sum[r] = top[r] > -INFINITY ? 1.0f : 0.0f;
  }
  for (; tiles.more(); tiles.advance()) {
    const Step now = tiles.step();
    const auto seen = term.seen(now.part);
    const EntryPositions keys(seen.keys);
    __syncthreads();
    load_rows(k, HeadRows<const float>(call.k, unit.of_keys()), call.key_size, keys, now.begin);
    load_rows(v, HeadRows<const float>(call.v, unit.of_keys()), call.value_size, keys, now.begin);
    __syncthreads();
    const Interval own = own_interval(seen, queries.set, begin);
    float s[warp_rows];
    multiply_rows(s, q, k);
#pragma unroll
    for (int r = 0; r < warp_rows; ++r) {
      const std::int32_t query = begin + first_row_of() + r, key = now.begin + lane_of();
      const bool allowed = holds(own, r, key);
      float score = allowed ? s[r] * call.scale : -INFINITY, weight = 1;
      if constexpr (Term::given) score += allowed ? pairs.score(query, key, now.part) * call.scale : 0.0f;
      if constexpr (Term::weighs) weight = allowed ? pairs.weight(query, key) : 0.0f;
      const float largest = fmaxf(top[r], warp_max(score)), base = largest == -INFINITY ? 0.0f : largest;
      const float shrink = expf(top[r] - base);
      top[r] = largest;
      s[r] = weight * expf(score - base);
      sum[r] = sum[r] * shrink + warp_sum(s[r]);
      if constexpr (Term::weighs) s[r] *= pairs.keep(query, key);
#pragma unroll
      for (int x = 0; x < plain_vectors; ++x) acc[r][x] *= shrink;
    }
    spread(p, s);
    add_product(acc, p, v, call.value_size);
  }
#pragma unroll
  for (int r = 0; r < warp_rows; ++r) {
    float share = sum[r] > 0 ? 1 / sum[r] : 0.0f, of_row = sum[r] > 0 ? top[r] + logf(sum[r]) : -INFINITY;
    if (call.sink != nullptr && !term.adds()) join_sink(call.sink[unit.head], share, of_row);
#pragma unroll
    for (int x = 0; x < plain_vectors; ++x) acc[r][x] *= share;
    const std::int32_t entry = begin + first_row_of() + r;
    if (lane_of() == 0 && entry < queries.set.length) lse[queries.at(entry)] = of_row;
  }
  store_rows(acc, o_rows, call.value_size, queries, begin, 1.0f, false);
}

// Without a term, at most 128 registers: ptxas takes 149 otherwise, which leave room for three blocks, not four.
template <class Term>
__global__ __launch_bounds__(block_threads,
                             Term::given ? 3 : 4) void dq_f32_kernel(const __grid_constant__ typename Term::Call call) {
  const Term term(call, Side::queries, rows);
  const WorkUnit& unit = term.unit;
  const std::int32_t begin = unit.tile * rows;
  if (begin < 0 || begin >= term.queries.length) {
    if constexpr (Term::weighs) term.clear_sums();
    return;
  }
  const EntryPositions queries(term.queries);
  KeyTiles<Term> tiles(term, tile_shape);
  if (term.adds() && !tiles.more()) return;
  const PairsOf<Term> pairs(term);

  extern __shared__ __align__(16) char memory[];
  const int key_stride = stride_of(call.key_size), value_stride = stride_of(call.value_size);
  const FloatTile q{reinterpret_cast<float*>(memory), key_stride}, k{q.row(rows), key_stride},
      v{k.row(rows), value_stride}, dout{v.row(rows), value_stride};
  float* const p = dout.row(rows) + first_row_of() * rows;
  load_rows(q, HeadRows<const float>(call.q, unit), call.key_size, queries, begin);
  load_rows(dout, HeadRows<const float>(call.dout, unit), call.value_size, queries, begin);
  float lse[warp_rows], delta[warp_rows];
#pragma unroll
  for (int r = 0; r < warp_rows; ++r) {
    const std::int32_t entry = begin + first_row_of() + r;
    const bool valid = entry < queries.set.length;
    const std::int64_t at = lse_row(call, unit) + (valid ? queries.at(entry) : 0);
    lse[r] = valid ? call.lse[at] : INFINITY;
    delta[r] = valid ? call.delta[at] : 0.0f;
  }
  Accumulator acc = {};
  float by_term[Term::weighs ? warp_rows : 1][plain_vectors] = {}, span = 0;
  for (; tiles.more(); tiles.advance()) {
    const Step now = tiles.step();
    const auto seen = term.seen(now.part);
    const EntryPositions keys(seen.keys);
    __syncthreads();
    load_rows(k, HeadRows<const float>(call.k, unit.of_keys()), call.key_size, keys, now.begin);
    load_rows(v, HeadRows<const float>(call.v, unit.of_keys()), call.value_size, keys, now.begin);
    __syncthreads();
    const Interval own = own_interval(seen, queries.set, begin);
    float s[warp_rows], dp[warp_rows];
    multiply_rows(s, q, k);
    multiply_rows(dp, dout, v);
#pragma unroll
    for (int r = 0; r < warp_rows; ++r) {
      const std::int32_t query = begin + first_row_of() + r, key = now.begin + lane_of();
      const bool allowed = holds(own, r, key);
      if constexpr (Term::weighs) {
        const float weight = allowed ? pairs.weight(query, key) : 0.0f;
        float along = 0;
        if (weight > 0) {
          s[r] += pairs.score(query, key, now.part);
          along = expf(s[r] * call.scale - lse[r]) * (dp[r] * pairs.keep(query, key) - delta[r]);
        }
        if (weight < 1) span += along;
        s[r] = weight * along;
      } else {
        if constexpr (Term::given) s[r] += allowed ? pairs.score(query, key, now.part) : 0.0f;
        const float along = expf(s[r] * call.scale - lse[r]) * (dp[r] - delta[r]);
        s[r] = allowed ? along : 0.0f;
        if constexpr (Term::given) pairs.add_gradients(s[r], query, key, now.part);
      }
    }
    spread(p, s);
    add_product(acc, p, k, call.key_size);
    if constexpr (Term::weighs) {
      for (int c = 0; c < rows; ++c)
#pragma unroll
        for (int r = 0; r < warp_rows; ++r)
          pairs.add_gradient(by_term[r], p[r * rows + c], begin + first_row_of() + r, now.begin + c);
    }
  }
  if constexpr (Term::weighs) {
    __syncthreads();  // the tiles are free
    pairs.finish(acc, by_term, span, k.data);
  } else if constexpr (Term::given) {
    pairs.finish(acc, begin + first_row_of());
  }
  store_rows(acc, HeadRows<float>(call.dq, unit), call.key_size, queries, begin, call.scale, term.adds());
}

template <class Term>
__global__ __launch_bounds__(block_threads) void dkdv_f32_kernel(const __grid_constant__ typename Term::Call call) {
  const Term term(call, Side::keys, rows);
  const WorkUnit& unit = term.unit;
  const auto seen = term.seen(0);
  const EntryPositions queries(term.queries), keys(seen.keys);
  const std::int32_t begin = unit.tile * rows;
  if (begin >= keys.set.length) return;
  __shared__ std::int32_t found[4];
  TileWalk tiles = query_tiles_by_block(term, seen, tile_shape, found);
  if (term.adds() && !tiles.more()) return;
  const PairsOf<Term> pairs(term);

  extern __shared__ __align__(16) char memory[];
  const int key_stride = stride_of(call.key_size), value_stride = stride_of(call.value_size);
  const FloatTile q{reinterpret_cast<float*>(memory), key_stride}, k{q.row(rows), key_stride},
      v{k.row(rows), value_stride}, dout{v.row(rows), value_stride};
  float* const p = dout.row(rows) + first_row_of() * rows;
  load_rows(k, HeadRows<const float>(call.k, unit.of_keys()), call.key_size, keys, begin);
  load_rows(v, HeadRows<const float>(call.v, unit.of_keys()), call.value_size, keys, begin);
  Accumulator dk = {}, dv = {};
  for (; tiles.more(); tiles.advance()) {
    const std::int32_t first = tiles.tile() * rows;
    __syncthreads();
    load_rows(q, HeadRows<const float>(call.q, unit), call.key_size, queries, first);
    load_rows(dout, HeadRows<const float>(call.dout, unit), call.value_size, queries, first);
    __syncthreads();
    const std::int32_t entry = first + lane_of();  // one query per lane
    Interval in;
    float lse = INFINITY, delta = 0;
    if (entry < queries.set.length) {
      const std::int32_t position = queries.at(entry);
      in = seen.interval(position);
      lse = call.lse[lse_row(call, unit) + position];
      delta = call.delta[lse_row(call, unit) + position];
    }
    float s[warp_rows], dp[warp_rows];
    multiply_rows(s, k, q);
    multiply_rows(dp, v, dout);
#pragma unroll
    for (int r = 0; r < warp_rows; ++r) {
      const std::int32_t key = begin + first_row_of() + r;
      const bool allowed = key >= in.begin && key < in.end;
      if constexpr (Term::weighs) {
        const float weight = allowed ? pairs.weight(entry, key) : 0.0f, keep = pairs.keep(entry, key);
        const float score = weight > 0 ? s[r] + pairs.score(entry, key, 0) : 0.0f;
        const float weighted = weight > 0 ? weight * expf(score * call.scale - lse) : 0.0f;
        s[r] = weighted * keep;
        dp[r] = weighted * (dp[r] * keep - delta);
      } else {
        if constexpr (Term::given) s[r] += allowed ? pairs.score(entry, key, 0) : 0.0f;
        s[r] = allowed ? expf(s[r] * call.scale - lse) : 0.0f;
        dp[r] = s[r] * (dp[r] - delta);
      }
    }
    spread(p, s);
    add_product(dv, p, dout, call.value_size);
    spread(p, dp);
    add_product(dk, p, q, call.key_size);
  }
  store_rows(dk, HeadRows<float>(call.dk, unit), call.key_size, keys, begin, call.scale, term.adds());
  store_rows(dv, HeadRows<float>(call.dv, unit), call.value_size, keys, begin, 1.0f, term.adds());
}

// Tiles of key size, of value size, and the scores.
std::size_t shared_bytes(const Call& call, int key_tiles, int value_tiles) {
  return sizeof(float) * (static_cast<std::size_t>(key_tiles) * tile_floats(call.key_size) +
                          static_cast<std::size_t>(value_tiles) * tile_floats(call.value_size) + rows * rows);
}

template <class Term, class Kernel>
void run_f32(const char* name, Kernel kernel, const typename Term::Call& call, Side side, std::size_t bytes,
             const Launch& launch) {
  allow_shared(kernel, bytes);
  run(name, kernel, {Term::grid(call, side, rows), block_threads, bytes}, launch, call);
}
template <class Term>
void run_forward(const typename Term::Call& call, const Launch& launch) {
  run_f32<Term>("attention forward", forward_f32_kernel<Term>, call, Side::queries, shared_bytes(call, 2, 1), launch);
}
template <class Term>
void run_dq(const typename Term::Call& call, const Launch& launch) {
  run_f32<Term>("attention dq", dq_f32_kernel<Term>, call, Side::queries, shared_bytes(call, 2, 2), launch);
}
template <class Term>
void run_dkdv(const typename Term::Call& call, const Launch& launch) {
  run_f32<Term>("attention dkdv", dkdv_f32_kernel<Term>, call, Side::keys, shared_bytes(call, 2, 2), launch);
}

}  // namespace

#define LONGSTRIDE_FOR_F32(name)                                                                  \
  template <>                                                                                     \
  void name<float>(const PlanCall& call, const Launch& launch) {                                  \
    call.lists.given() ? run_##name<ListedTerm>(call, launch) : run_##name<NoTerm>(call, launch); \
  }                                                                                               \
  template <>                                                                                     \
  void name<float>(const distance::PortableCall& call, const Launch& launch) {                    \
    run_##name<DistanceTerm>(call, launch);                                                       \
  }                                                                                               \
  template <>                                                                                     \
  void name<float>(const LabelsCall& call, const Launch& launch) {                                \
    run_##name<LabelsTerm>(call, launch);                                                         \
  }
LONGSTRIDE_FOR_F32(forward)
LONGSTRIDE_FOR_F32(dq)
LONGSTRIDE_FOR_F32(dkdv)

}  // namespace longstride::kernels::cuda::portable
