// A block has a tile of 16 rows, the query heads of one key head, and a share of the tiles of 64 keys that they see.
// Its four warps have 16 keys of every tile each, with an online softmax of their own, and are merged in order.
#include "kernels/attention/portable/online_softmax.cuh"
#include "kernels/attention/portable/products.cuh"
#include "kernels/attention/sink.h"
#include "kernels/base/cuda_launch.cuh"

namespace longstride::kernels::cuda::portable {
namespace {

constexpr int query_rows = OneQueryPlan::most_rows, tile_keys = OneQueryPlan::tile_keys, warps = 4, warp_keys = 16;

struct OneQueryCall {
  OneQueryPlan plan;
  HeadMatrix q, k, v, o;
  float *partial, *partial_lse,
      *lse;  // (batch, heads, splits, value size) and (batch, heads, splits); lse: (batch, heads)
  const float* sink;
  float scale;
  std::int32_t key_size, value_size, heads_per_key;
  BoundsView bounds;
  bool aligned;
};

template <int Key, int Value>
constexpr std::size_t stages_bytes = std::size_t{2} * tile_keys*(Key + Value) * 2;
template <int Key, int Value>
constexpr std::size_t shared_bytes = query_rows* Key * 2 +
                                     (stages_bytes<Key, Value> > std::size_t{warps} * query_rows * (Value + 2) * 4
                                          ? stages_bytes<Key, Value>
                                          : std::size_t{warps} * query_rows * (Value + 2) * 4);

// The tiles of a unit's keys, one part after another.
struct KeyWalk {
  const OneQueryPlan::Geometry& geometry;
  BoundsOfHead bounds;
  std::int32_t part = -1, begin = 0, end = 0;  // entries that are left of the part

  __device__ bool more() {
    while (begin >= end) {
      if (++part >= geometry.parts) return false;
      const OneQueryPlan::Keys& keys = geometry.part[part];
      const Interval in = bounds.clamp(keys.in, keys.set, 0);
      begin = in.begin;
      end = in.end;
    }
    return true;
  }
  __device__ void skip(std::int32_t tiles) {
    for (; more(); begin = end) {
      const std::int32_t here = tiles_in(end - begin, tile_keys);
      if (tiles < here) {
        begin += tiles * tile_keys;
        return;
      }
      tiles -= here;
    }
  }
  __device__ std::int32_t count() {
    std::int32_t tiles = 0;
    for (; more(); begin = end) tiles += tiles_in(end - begin, tile_keys);
    return tiles;
  }
};

// Stores a warp's sums, and merges those of all.
template <int Value>
__device__ void store_partial(const OneQueryCall& call, const float (&acc)[Value / 8][4], const Softmax& softmax,
                              float* shared) {
  constexpr int row_floats = Value + 2;
  const int lane = this_lane(), warp = this_warp();
  float* const mine = shared + warp * query_rows * row_floats;
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
    float sum = softmax.sum[upper];
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
    float* const row = mine + (lane / 4 + 8 * upper) * row_floats;
#pragma unroll
    for (int j = 0; j < Value / 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) row[8 * j + lane % 4 * 2 + e] = acc[j][2 * upper + e];
    if (lane % 4 == 0) {
      row[Value] = softmax.top[upper];
      row[Value + 1] = sum;
    }
  }
  __syncthreads();
  const std::int64_t head = static_cast<std::int64_t>(blockIdx.y) * call.plan.rows;
  for (int x = static_cast<int>(threadIdx.x); x < call.plan.rows * Value; x += block_threads) {
    const int row = x / Value, column = x % Value;
    const auto of_warp = [&](int w) { return shared + (w * query_rows + row) * row_floats; };
    float top = -INFINITY, sum = 0, value = 0;
    for (int w = 0; w < warps; ++w) top = fmaxf(top, of_warp(w)[Value]);
    for (int w = 0; w < warps && top > -INFINITY; ++w) {
      const float share = exp2f(of_warp(w)[Value] - top);
      sum += share * of_warp(w)[Value + 1];
      value += share * of_warp(w)[column];
    }
    const std::int64_t at =
        ((static_cast<std::int64_t>(blockIdx.z) * call.plan.heads + head + row) * call.plan.splits + blockIdx.x);
    if (column < call.value_size) call.partial[at * call.value_size + column] = sum > 0 ? value / sum : 0.0f;
    if (column == 0) call.partial_lse[at] = sum > 0 ? (top + log2f(sum)) * ln_2 : -INFINITY;
  }
}

template <class T, int Key, int Value>
__global__ __launch_bounds__(block_threads) void one_query_kernel(const __grid_constant__ OneQueryCall call) {
  extern __shared__ __align__(128) char memory[];
  const Tile<T, Key> q{reinterpret_cast<T*>(memory)};
  T* const stages = q.data + query_rows * Key;
  const auto k_of = [&](int stage) { return Tile<T, Key>{stages + stage * tile_keys * (Key + Value)}; };
  const auto v_of = [&](int stage) { return Tile<T, Value>{k_of(stage).data + tile_keys * Key}; };
  const auto head = static_cast<std::int32_t>(blockIdx.y) * call.plan.rows,
             sequence = static_cast<std::int32_t>(blockIdx.z);
  for (int x = static_cast<int>(threadIdx.x); x < query_rows * Key / 8; x += block_threads) {
    const int row = x / (Key / 8), column = x % (Key / 8) * 8;
    const bool valid = row < call.plan.rows && column < call.key_size;
    const T* const from = static_cast<const T*>(call.q.data) + sequence * call.q.batch +
                          (valid ? (head + row) * call.q.head + column : 0);
    load_chunk(q.chunk(row, x % (Key / 8)), from, valid, column, call.key_size, call.aligned);
  }
  const OneQueryPlan::Geometry& geometry = call.plan.geometry[call.plan.of_head[head]];
  const BoundsOfHead bounds = call.bounds.of(sequence, head);
  const std::int64_t tiles = KeyWalk{geometry, bounds}.count();
  const auto from = static_cast<std::int32_t>(tiles * blockIdx.x / call.plan.splits),
             until = static_cast<std::int32_t>(tiles * (blockIdx.x + 1) / call.plan.splits);
  KeyWalk walk{geometry, bounds};
  walk.skip(from);
  const WorkUnit unit{sequence, head / call.heads_per_key, 0, 0};
  const HeadRows<const T> k_rows(call.k, unit), v_rows(call.v, unit);
  const auto load_keys = [&](int stage) {
    const EntryPositions keys(geometry.part[walk.part].set);
    load_tile<tile_keys>(k_of(stage), k_rows, call.key_size, keys, walk.begin, call.aligned);
    load_tile<tile_keys>(v_of(stage), v_rows, call.value_size, keys, walk.begin, call.aligned);
  };
  if (from < until && walk.more()) load_keys(0);
  copies_commit();
  const int warp = this_warp(), lane = this_lane();
  float acc[1][Value / 8][4] = {};
  Softmax softmax;
  for (std::int32_t tile = from, stage = 0; tile < until; ++tile, stage ^= 1) {
    const std::int32_t seen = walk.end - walk.begin;  // keys of the tile, or more
    walk.begin += tile_keys;
    copies_wait<0>();
    __syncthreads();
    if (tile + 1 < until && walk.more()) load_keys(stage ^ 1);
    copies_commit();
    float s[1][2][4];
    multiply_strips<T, warp_keys>(s, q, 0, Tile<T, Key>{k_of(stage).data + warp * warp_keys * Key});
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = warp * warp_keys + 8 * j + lane % 4 * 2 + e % 2;
        s[0][j][e] = key < seen ? s[0][j][e] * call.scale : -INFINITY;
      }
    softmax.add(s[0], acc[0], [](int, int) { return 1.0f; });
    multiply_probability_strips<T, warp_keys>(acc, s, Tile<T, Value>{v_of(stage).data + warp * warp_keys * Value});
  }
  copies_wait<0>();
  __syncthreads();  // the stages are free
  store_partial<Value>(call, acc[0], softmax, reinterpret_cast<float*>(stages));
}

// A block per head: its splits in order.
template <class T>
__global__ __launch_bounds__(block_threads) void merge_kernel(const __grid_constant__ OneQueryCall call) {
  const auto head = static_cast<std::int64_t>(blockIdx.x), sequence = static_cast<std::int64_t>(blockIdx.y);
  const std::int64_t first = (sequence * call.plan.heads + head) * call.plan.splits;
  float top = -INFINITY, sum = 0;
  for (std::int32_t s = 0; s < call.plan.splits; ++s) top = fmaxf(top, call.partial_lse[first + s]);
  for (std::int32_t s = 0; s < call.plan.splits && top > -INFINITY; ++s) sum += expf(call.partial_lse[first + s] - top);
  float factor = sum > 0 ? 1 / sum : 0.0f, lse = sum > 0 ? top + logf(sum) : -INFINITY;
  if (call.sink != nullptr) join_sink(call.sink[head], factor, lse);
  if (threadIdx.x == 0) call.lse[sequence * call.plan.heads + head] = lse;
  T* const o = static_cast<T*>(call.o.data) + sequence * call.o.batch + head * call.o.head;
  for (auto column = static_cast<std::int32_t>(threadIdx.x); column < call.value_size; column += block_threads) {
    float value = 0;
    for (std::int32_t s = 0; s < call.plan.splits && sum > 0; ++s)
      value += expf(call.partial_lse[first + s] - top) * call.partial[(first + s) * call.value_size + column];
    o[column] = from_float<T>(value * factor);
  }
}

}  // namespace

void one_query(const AttentionArgs& args, const OneQueryPlan& plan, const Launch& launch) {
  OneQueryCall call;
  call.plan = plan;
  call.q = HeadMatrix(args.q);
  call.k = HeadMatrix(args.k);
  call.v = HeadMatrix(args.v);
  call.o = HeadMatrix(args.o);
  call.partial = args.scratch.as<float>();
  call.partial_lse = call.partial + args.q.size(0) * plan.heads * plan.splits * args.v.size(3);
  call.lse = args.lse.as<float>();
  call.sink = args.sink.as<const float>();
  call.scale = static_cast<float>(args.scale) * log2_e;
  call.key_size = static_cast<std::int32_t>(args.q.size(3));
  call.value_size = static_cast<std::int32_t>(args.v.size(3));
  call.heads_per_key = static_cast<std::int32_t>(args.q.size(2) / args.k.size(2));
  call.bounds = BoundsView(args.bounds);
  call.aligned = rows_on_16_bytes(args.q) && rows_on_16_bytes(args.k) && rows_on_16_bytes(args.v);
  const auto batch = static_cast<unsigned>(args.q.size(0));
  with_gpu_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>) {
      with_head_sizes(call.key_size, call.value_size, [&](auto sizes) {
        constexpr int key = decltype(sizes)::key, value = decltype(sizes)::value;
        allow_shared(one_query_kernel<T, key, value>, shared_bytes<key, value>);
        run("attention of one query", one_query_kernel<T, key, value>,
            {dim3(static_cast<unsigned>(plan.splits), static_cast<unsigned>(plan.heads / plan.rows), batch),
             block_threads, shared_bytes<key, value>},
            launch, call);
      });
      run("attention of one query, merged", merge_kernel<T>,
          {dim3(static_cast<unsigned>(plan.heads), batch), block_threads}, launch, call);
    }
  });
}

}  // namespace longstride::kernels::cuda::portable
