// Any type and any alignment, in f32: a warp has one row of a result in registers, every 32nd column per lane, and
// visits one pair after another.
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/distance_attention/gpu/head.cuh"

namespace longstride::kernels::cuda::distance {
namespace {

constexpr int warps = 4, threads = warps * warp_threads, most_vectors = portable::most_columns / warp_threads;

// A row of up to 128 elements.
struct Row {
  float x[most_vectors] = {};

  Row() = default;
  template <class T>
  __device__ Row(const T* from, int size) {
#pragma unroll
    for (int e = 0; e < most_vectors; ++e) {
      const int column = e * warp_threads + this_lane();
      x[e] = column < size ? to_float(from[column]) : 0.0f;
    }
  }
  __device__ void add(float factor, const Row& other) {
#pragma unroll
    for (int e = 0; e < most_vectors; ++e) x[e] = fmaf(factor, other.x[e], x[e]);
  }
  __device__ void multiply(float factor) {
#pragma unroll
    for (float& e : x) e *= factor;
  }
  template <class T>
  __device__ void store(T* to, int size) const {
#pragma unroll
    for (int e = 0; e < most_vectors; ++e) {
      const int column = e * warp_threads + this_lane();
      if (column < size) to[column] = from_float<T>(x[e]);
    }
  }
};
__device__ inline float dot(const Row& a, const Row& b) {
  float sum = 0;
#pragma unroll
  for (int e = 0; e < most_vectors; ++e) sum = fmaf(a.x[e], b.x[e], sum);
  return warp_sum(sum);
}

// The rows of query i.
template <class T>
struct Query {
  Row content, position, dout;
  float lse = 0, delta = 0;

  __device__ Query(const Call& call, const Head& head, std::int32_t i)
      : content(row_of<const T>(call.content, head, i), call.size),
        position(row_of<const T>(call.position, head, i), call.size) {
    if (call.dout.data == nullptr) return;
    dout = Row(row_of<const T>(call.dout, head, i), call.value_size);
    lse = call.lse[head.row(call, i)];
    delta = call.delta[head.row(call, i)];
  }
};

// The number of keys that query i sees, from m = reach.begin on.
__device__ inline std::int32_t end_of_keys(const Call& call, const Head& head, std::int32_t i) {
  const std::int32_t before = call.n_k - call.n_q + i - head.first_key;
  return before < 0 ? 0 : min(head.reach.end, before / head.step + 1);
}

// False if the bounds hide key j from query i.
__device__ inline bool within(const BoundsOfHead& bounds, std::int32_t i, std::int32_t j) {
  return !bounds.given() || (j >= bounds.begin[i] && j < bounds.end[i]);
}

template <class T>
struct Pair {
  Row k, t;
  float score;

  __device__ Pair(const Call& call, const Head& head, const Query<T>& query, std::int32_t j, std::int32_t m)
      : k(row_of<const T>(call.k, head, j), call.size) {
    score = dot(query.content, k);
    if (call.table == nullptr) return;
    t = Row(distance_row<T>(call, head, m), call.size);
    score += dot(query.position, t);
  }
};

template <class T>
struct PairGradient {
  float kept_probability = 0, unweighted = 0, ds = 0, weight = 0;

  __device__ PairGradient(const Call& call, const Head& head, const Query<T>& query, const Pair<T>& pair, const Row& v,
                          std::int32_t i, std::int32_t j, std::int32_t m) {
    weight = head.ramp.weight(m * head.step);
    if (weight == 0) return;
    const bool kept = call.kept.keeps(call.kept.row(head.sequence, head.head, i), j, call.kept.step_word());
    const float keep = kept ? call.keep_scale : 0.0f, p = expf(pair.score * call.scale - query.lse);
    kept_probability = weight * p * keep;
    unweighted = p * (dot(query.dout, v) * keep - query.delta);
    ds = weight * unweighted;
  }
};

template <class T>
__global__ void __launch_bounds__(threads) forward_kernel(const __grid_constant__ PortableCall whole) {
  const Call& call = whole.of;
  const Head head(call, static_cast<std::int32_t>(blockIdx.z), static_cast<std::int32_t>(blockIdx.y));
  const std::int32_t i = static_cast<std::int32_t>(blockIdx.x) * warps + this_warp();
  if (i >= call.n_q) return;
  const Query<T> query(call, head, i);
  const std::uint64_t drawn = call.kept.row(head.sequence, head.head, i);
  const std::uint32_t step_now = call.kept.step_word();
  Row out;
  float top = -INFINITY, sum = 0;
  const std::int32_t end = end_of_keys(call, head, i);
  const BoundsOfHead bounds = whole.bounds.of(head.sequence, head.head);
  for (std::int32_t m = head.reach.begin; m < end; ++m) {
    const std::int32_t j = call.n_k - call.n_q + i - m * head.step;
    const float weight = head.ramp.weight(m * head.step);
    if (weight == 0 || !within(bounds, i, j)) continue;
    const float score = Pair<T>(call, head, query, j, m).score * call.scale;
    const float largest = fmaxf(top, score), shrink = expf(top - largest), p = weight * expf(score - largest);
    top = largest;
    sum = sum * shrink + p;
    out.multiply(shrink);
    if (call.kept.keeps(drawn, j, step_now))
      out.add(p * call.keep_scale, Row(row_of<const T>(call.v, head, j), call.value_size));
  }
  out.multiply(sum > 0 ? 1 / sum : 0.0f);
  out.store(row_of<T>(call.o, head, i), call.value_size);
  if (this_lane() == 0) call.lse[head.row(call, i)] = sum > 0 ? top + logf(sum) : -INFINITY;
}

// A block has the queries of a tile, every fourth per warp.
template <class T>
__global__ void __launch_bounds__(threads) dq_kernel(const __grid_constant__ PortableCall whole) {
  const Call& call = whole.of;
  const Head head(call, static_cast<std::int32_t>(blockIdx.z), static_cast<std::int32_t>(blockIdx.y));
  Row content_sum, position_sum;
  float span_sum = 0;
  const std::int32_t begin = static_cast<std::int32_t>(blockIdx.x) * tile_rows;
  for (std::int32_t i = begin + this_warp(); i < min(begin + tile_rows, call.n_q); i += warps) {
    const Query<T> query(call, head, i);
    Row content, position;
    const std::int32_t end = end_of_keys(call, head, i);
    for (std::int32_t m = head.reach.begin; m < end; ++m) {
      const std::int32_t j = call.n_k - call.n_q + i - m * head.step;
      if (!within(whole.bounds.of(head.sequence, head.head), i, j)) continue;
      const Pair<T> pair(call, head, query, j, m);
      const PairGradient<T> g(call, head, query, pair, Row(row_of<const T>(call.v, head, j), call.value_size), i, j, m);
      content.add(g.ds * call.scale, pair.k);
      position.add(g.ds * call.scale, pair.t);
      if (g.weight < 1) span_sum += g.unweighted;
    }
    content_sum.add(1, content);
    position_sum.add(1, position);
    content.add(1, position);
    content.store(row_of<T>(call.dq, head, i), call.size);
  }
  __shared__ float part[warps][2 * portable::most_columns + 1];
  content_sum.store(part[this_warp()], call.size);
  position_sum.store(part[this_warp()] + call.size, call.size);
  if (this_lane() == 0)
    part[this_warp()][2 * call.size] = call.span != nullptr ? span_sum * call.longest_span / call.ramp : 0.0f;
  __syncthreads();
  const std::int64_t unit = static_cast<std::int64_t>(head.sequence) * call.heads + head.head;
  float* const to = call.bias_sums + (unit * call.query_tiles + blockIdx.x) * (2 * call.size + 1);
  for (int x = this_thread(); x < 2 * call.size + 1; x += threads)
    to[x] = part[0][x] + part[1][x] + part[2][x] + part[3][x];
}

template <class T>
__global__ void __launch_bounds__(threads) dkdv_kernel(const __grid_constant__ PortableCall whole) {
  const Call& call = whole.of;
  const Head head(call, static_cast<std::int32_t>(blockIdx.z), static_cast<std::int32_t>(blockIdx.y));
  const std::int32_t j = static_cast<std::int32_t>(blockIdx.x) * warps + this_warp();
  if (j >= call.n_k) return;
  const Row v(row_of<const T>(call.v, head, j), call.value_size);
  Row dk, dv;
  const std::int32_t end = j < head.first_key ? 0 : head.reach.end;
  for (std::int32_t m = head.reach.begin; m < end; ++m) {
    const std::int32_t i = j + m * head.step - (call.n_k - call.n_q);
    if (i >= call.n_q) break;
    if (i < 0 || !within(whole.bounds.of(head.sequence, head.head), i, j)) continue;
    const Query<T> query(call, head, i);
    const Pair<T> pair(call, head, query, j, m);
    const PairGradient<T> g(call, head, query, pair, v, i, j, m);
    dk.add(g.ds * call.scale, query.content);
    dv.add(g.kept_probability, query.dout);
  }
  dk.store(row_of<T>(call.dk, head, j), call.size);
  dv.store(row_of<T>(call.dv, head, j), call.value_size);
}

// One warp per m of a head and chunk of sequences and tiles of queries. It writes the sum as the row of one band, and
// zeros as that of the other.
template <class T>
__global__ void __launch_bounds__(threads) dtable_kernel(const __grid_constant__ PortableCall whole) {
  const Call& call = whole.of;
  const auto band = static_cast<std::int32_t>(blockIdx.x), chunk = static_cast<std::int32_t>(blockIdx.z);
  const auto h = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t units = call.batch * call.query_tiles, per_chunk = (units + call.chunks - 1) / call.chunks;
  const std::int64_t at = (static_cast<std::int64_t>(chunk) * call.heads + h) * call.bands + band;
  for (std::int32_t x = this_warp(); x < band_rows; x += warps) {
    Row sum;
    for (std::int32_t unit = chunk * per_chunk; unit < min(units, (chunk + 1) * per_chunk) && x < tile_rows; ++unit) {
      const Head head(call, unit / call.query_tiles, h);
      const std::int32_t m = band_begin(head.origin, band) + x, begin = unit % call.query_tiles * tile_rows;
      if (m < head.reach.begin || m >= head.reach.end) continue;
      for (std::int32_t i = begin; i < min(begin + tile_rows, call.n_q); ++i) {
        if (m >= end_of_keys(call, head, i)) continue;
        const std::int32_t j = call.n_k - call.n_q + i - m * head.step;
        if (!within(whole.bounds.of(head.sequence, h), i, j)) continue;
        const Query<T> query(call, head, i);
        const Pair<T> pair(call, head, query, j, m);
        const PairGradient<T> g(call, head, query, pair, Row(row_of<const T>(call.v, head, j), call.value_size), i, j,
                                m);
        sum.add(g.ds * call.scale, query.position);
      }
    }
    sum.store(call.table_sums + (at * band_rows + x) * call.size, call.size);
  }
}

dim3 grid_of(const PortableCall& call, std::int64_t x) {
  return {static_cast<unsigned>(x), static_cast<unsigned>(call.heads), static_cast<unsigned>(call.batch)};
}

}  // namespace

template <class T>
void plain_forward(const PortableCall& call, const Launch& launch) {
  run("distance attention forward", forward_kernel<T>, {grid_of(call, divide_up(call.n_q, warps)), threads}, launch,
      call);
}
template <class T>
void plain_dq(const PortableCall& call, const Launch& launch) {
  run("distance attention dq", dq_kernel<T>, {grid_of(call, call.of.query_tiles), threads}, launch, call);
}
template <class T>
void plain_dkdv(const PortableCall& call, const Launch& launch) {
  run("distance attention dkdv", dkdv_kernel<T>, {grid_of(call, divide_up(call.n_k, warps)), threads}, launch, call);
}
template <class T>
void plain_dtable(const PortableCall& call, const Launch& launch) {
  const dim3 blocks(static_cast<unsigned>(call.of.bands), static_cast<unsigned>(call.heads),
                    static_cast<unsigned>(call.of.chunks));
  run("distance attention dtable", dtable_kernel<T>, {blocks, threads}, launch, call);
}

#define LONGSTRIDE_FOR(T)                                             \
  template void plain_forward<T>(const PortableCall&, const Launch&); \
  template void plain_dq<T>(const PortableCall&, const Launch&);      \
  template void plain_dkdv<T>(const PortableCall&, const Launch&);    \
  template void plain_dtable<T>(const PortableCall&, const Launch&);
LONGSTRIDE_FOR(float)
LONGSTRIDE_FOR(__nv_bfloat16)
LONGSTRIDE_FOR(__half)

}  // namespace longstride::kernels::cuda::distance
