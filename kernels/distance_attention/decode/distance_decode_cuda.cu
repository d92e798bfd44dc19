// One block per (head, sequence). Every warp processes some of the keys with an online softmax, four at a time, and the
// warps are merged in order.
#include <algorithm>

#include "kernels/attention/decode/running_softmax.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/distance_attention/decode/distance_decode.h"
#include "kernels/distance_attention/visible.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int warps = 16, threads = 32 * warps;
constexpr int most_heads = 128;

template <class T>
struct Cache {
  T *keys, *values;
  std::int64_t rows;
  int key_size, value_size;

  explicit Cache(const DistanceCache& c)
      : keys(c.keys.as<T>()),
        values(c.values.as<T>()),
        rows(c.plan->rows),
        key_size(static_cast<int>(c.keys.size(2))),
        value_size(static_cast<int>(c.values.size(2))) {}
};

// The plan, by value.
struct Rings {
  SeenPositions seen;
  std::int32_t window;
  bool self;
  DistanceRing ring[most_heads];

  explicit Rings(const DistanceDecodePlan& plan)
      : seen(plan.stream), window(static_cast<std::int32_t>(plan.stream.window)), self(plan.stream.self) {
    std::copy(plan.rings.begin(), plan.rings.end(), ring);
  }
};

// The distance term of scores.
template <class T>
struct Term {
  const T* table;  // null: none
  std::int64_t table_row, table_head;
  const float *content_bias, *position_bias, *span;
  std::int32_t distances;
  float longest_span, ramp, scale;

  explicit Term(const DistanceDecodeArgs& a)
      : table(a.table.given() ? a.table.as<const T>() : nullptr),
        table_row(a.table.given() ? a.table.stride(0) : 0),
        table_head(a.table.given() && a.table.size(1) > 1 ? a.table.stride(1) : 0),
        content_bias(a.content_bias.given() ? a.content_bias.as<const float>() : nullptr),
        position_bias(a.position_bias.given() ? a.position_bias.as<const float>() : nullptr),
        span(a.span.given() ? a.span.as<const float>() : nullptr),
        distances(a.table.given() ? static_cast<std::int32_t>(a.table.size(0)) : 0),
        longest_span(static_cast<float>(a.longest_span)),
        ramp(static_cast<float>(a.ramp)),
        scale(static_cast<float>(a.scale)) {}
};

template <class T>
__global__ void __launch_bounds__(threads)
    append_rows(const Rings rings, const StridedRows<const T> k, const StridedRows<const T> v, const Cache<T> cache,
                std::int64_t rows, std::int64_t first_at_host, const std::int64_t* first_at) {
  const std::int64_t h = blockIdx.x, batch = blockIdx.y;
  const DistanceRing ring = rings.ring[h];
  const std::int64_t first = either(first_at_host, first_at);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (std::int64_t r = blockIdx.z * warps + threadIdx.x / 32; r < rows; r += gridDim.z * warps) {
    if (r < rows - ring.capacity) continue;  // the same call overwrites it
    const std::int64_t row = batch * cache.rows + ring.first_row + (first + r + rings.seen.before) % ring.capacity;
    for (int d = lane; d < k.size; d += 32) cache.keys[row * cache.key_size + d] = k.at(batch, r, h)[d];
    for (int d = lane; d < v.size; d += 32) cache.values[row * cache.value_size + d] = v.at(batch, r, h)[d];
  }
}

// A query with its biases, scaled, `decode_dims` elements per lane.
template <class T>
struct BiasedQuery {
  float content[decode_dims] = {}, position[decode_dims] = {};

  __device__ BiasedQuery(const T* q, int size, std::int64_t head, const Term<T>& term) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int e = 0; e < decode_dims; ++e) {
      const int d = e * 32 + lane;
      if (d >= size) continue;
      const float x = to_float(q[d]);
      content[e] = term.scale * (x + (term.content_bias != nullptr ? term.content_bias[head * size + d] : 0.0f));
      position[e] = term.scale * (x + (term.position_bias != nullptr ? term.position_bias[head * size + d] : 0.0f));
    }
  }
  // This lane's share of a score; `t` may be null.
  __device__ __forceinline__ float share(const T* key, const T* t, int size) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float sum = 0;
#pragma unroll
    for (int e = 0; e < decode_dims; ++e) {
      const int d = e * 32 + lane;
      if (d >= size) continue;
      sum += content[e] * to_float(key[d]);
      if (t != nullptr) sum += position[e] * to_float(t[d]);
    }
    return sum;
  }
};

template <class T>
__global__ void __launch_bounds__(threads)
    decode_rows(const Rings rings, const StridedRows<const T> q, const Cache<const T> cache, const StridedRows<T> o,
                const Term<T> term, std::int64_t position_at_host, const std::int64_t* position_at) {
  constexpr int at_once = 4;
  const std::int64_t h = blockIdx.x, batch = blockIdx.y;
  const DistanceRing ring = rings.ring[h];
  const std::int64_t position = either(position_at_host, position_at);
  const Ramp<float> ramp =
      term.span != nullptr ? Ramp<float>(term.span[h], term.longest_span, term.ramp) : Ramp<float>();
  const std::int64_t seen = position - rings.seen.first(position);
  const std::int32_t entries = min(static_cast<std::int32_t>(seen), ring.capacity - 1) / ring.dilation + 1;
  const Reach in = reach_of(entries, rings.window, rings.self, ring.dilation, ramp);
  const auto own =
      static_cast<std::int32_t>((position + rings.seen.before) % ring.capacity);  // row of the query's position
  const T* const keys = cache.keys + (batch * cache.rows + ring.first_row) * cache.key_size;
  const T* const values = cache.values + (batch * cache.rows + ring.first_row) * cache.value_size;
  const T* const table = term.table != nullptr ? term.table + h * term.table_head : nullptr;
  const BiasedQuery<T> query(q.at(batch, 0, h), q.size, h, term);
  RunningSoftmax result;
  for (std::int32_t m = in.begin + static_cast<std::int32_t>(threadIdx.x) / 32 * at_once; m < in.end;
       m += warps * at_once) {
    std::int32_t row[at_once];
    float score[at_once], weight[at_once], most = result.top;
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      weight[i] = m + i < in.end ? ramp.weight((m + i) * ring.dilation) : 0.0f;
      row[i] = own - (m + i) * ring.dilation;
      if (row[i] < 0) row[i] += ring.capacity;
      score[i] = -INFINITY;
      if (weight[i] > 0) {  // the same for all lanes
        const T* t = nullptr;
        if (table != nullptr) t = table + table_row(m + i, ring.dilation, term.distances) * term.table_row;
        score[i] = warp_sum(query.share(keys + static_cast<std::int64_t>(row[i]) * cache.key_size, t, q.size));
      }
      most = fmaxf(most, score[i]);
    }
    result.rise(most);
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      if (weight[i] > 0)
        result.add(weight[i] * expf(score[i] - result.top),
                   values + static_cast<std::int64_t>(row[i]) * cache.value_size, cache.value_size);
  }
  merge_warps<warps>(result, -INFINITY, o.at(batch, 0, h), o.size);
}

}  // namespace

void distance_append(const DistanceAppendArgs& args, const Launch& launch) {
  const std::int64_t rows = args.k.size(1);
  const dim3 grid(static_cast<unsigned>(args.k.size(2)), static_cast<unsigned>(args.k.size(0)),
                  blocks_for(std::min<std::int64_t>(rows, 512), warps));
  with_gpu_type(args.k.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("distance append", append_rows<T>, {grid, threads}, launch, Rings(*args.cache.plan),
        StridedRows<const T>(args.k), StridedRows<const T>(args.v), Cache<T>(args.cache), rows, args.first,
        args.first_at);
  });
}

void distance_decode(const DistanceDecodeArgs& args, const Launch& launch) {
  const dim3 grid(static_cast<unsigned>(args.q.size(2)), static_cast<unsigned>(args.q.size(0)));
  with_gpu_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("distance decode", decode_rows<T>, {grid, threads}, launch, Rings(*args.cache.plan),
        StridedRows<const T>(args.q), Cache<const T>(args.cache), StridedRows<T>(args.o), Term<T>(args), args.position,
        args.position_at);
  });
}

}  // namespace longstride::kernels::cuda
