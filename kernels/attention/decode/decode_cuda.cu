// Decoding for any head sizes and any pattern, one block per (sequence, head).
#include <algorithm>

#include "kernels/attention/decode/decode_geometry.h"
#include "kernels/attention/decode/running_softmax.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"

namespace longstride::kernels::cuda {
namespace {

constexpr int warps = 8, threads = 32 * warps;

// As many heads as fit into a kernel's parameters.
struct DecodeHeads {
  static constexpr int most = 8;
  std::int32_t first = 0, n = 0;
  std::int32_t key_head[most] = {};  // that each reads
  HeadGeometry head[most];
};

template <class T>
struct CacheRows {
  T* data;
  std::int64_t rows;
  int size;

  explicit CacheRows(const Tensor& v) : data(v.as<T>()), rows(v.size(1)), size(static_cast<int>(v.size(2))) {}
  __device__ T* at(std::int64_t b, std::int64_t row) const { return data + (b * rows + row) * size; }
};

template <class T>
__global__ void __launch_bounds__(threads)
    append_rows(const DecodeHeads heads, const StridedRows<const T> k, const StridedRows<const T> v,
                const CacheRows<T> keys, const CacheRows<T> values, std::int64_t rows, std::int64_t first_at_host,
                const std::int64_t* first_at) {
  const HeadGeometry& head = heads.head[blockIdx.x];
  if (head.shares) return;
  const std::int64_t h = heads.key_head[blockIdx.x], batch = blockIdx.y;
  const auto first = static_cast<std::int32_t>(either(first_at_host, first_at));
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (std::int64_t r = blockIdx.z * warps + threadIdx.x / 32; r < rows; r += gridDim.z * warps) {
    const std::int32_t position = first + static_cast<std::int32_t>(r);
    for (int i = 0; i < head.ring_count; ++i) {
      const CacheRing& ring = head.rings[i];
      const std::int64_t row = ring_row(ring, position);
      const std::int32_t stop = ring.set.count_below(first + static_cast<std::int32_t>(rows));
      // StridedRows that the same call would overwrite are not written.
      if (row < 0 || ring.set.count_below(position) < stop - ring.capacity) continue;
      for (int d = lane; d < k.size; d += 32) keys.at(batch, row)[d] = k.at(batch, r, h)[d];
      for (int d = lane; d < v.size; d += 32) values.at(batch, row)[d] = v.at(batch, r, h)[d];
    }
  }
}

// A warp processes every 8th key with an online softmax, four keys at a time; the warps are merged in order.
template <class T>
__global__ void __launch_bounds__(threads)
    decode_rows(const DecodeHeads heads, const StridedRows<const T> q, const CacheRows<const T> keys,
                const CacheRows<const T> values, const StridedRows<T> o, const float* sink,
                std::int64_t position_at_host, const std::int64_t* position_at, float scale) {
  constexpr int at_once = 4;
  const HeadGeometry& head = heads.head[blockIdx.x];
  const std::int64_t h = heads.first + blockIdx.x, batch = blockIdx.y;
  const auto position = static_cast<std::int32_t>(either(position_at_host, position_at));
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float query[decode_dims] = {};
  RunningSoftmax result;
  for (int e = 0; e < decode_dims; ++e)
    if (e * 32 + lane < q.size) query[e] = scale * to_float(q.at(batch, 0, h)[e * 32 + lane]);
  for (int p = 0; p < head.part_count; ++p) {
    const KeyRows rows = key_rows_of(head, p, heads.n, position);
    for (std::int32_t t = warp * at_once; t < rows.count(); t += warps * at_once) {
      std::int64_t row[at_once];
      float score[at_once], most = result.top;
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        row[i] = t + i < rows.count() ? rows.row(t + i) : -1;
        float dot = 0;
        for (int e = 0; e < decode_dims; ++e)
          if (row[i] >= 0 && e * 32 + lane < q.size) dot += query[e] * to_float(keys.at(batch, row[i])[e * 32 + lane]);
        score[i] = row[i] >= 0 ? warp_sum(dot) : -INFINITY;
        most = fmaxf(most, score[i]);
      }
      result.rise(most);
#pragma unroll
      for (int i = 0; i < at_once; ++i)
        if (row[i] >= 0) result.add(expf(score[i] - result.top), values.at(batch, row[i]), values.size);
    }
  }
  merge_warps<warps>(result, sink != nullptr ? sink[h] : -INFINITY, o.at(batch, 0, h), o.size);
}

template <class F>
void each_heads(const DecodePlan& plan, F&& f) {
  for (std::size_t first = 0; first < plan.heads.size(); first += DecodeHeads::most) {
    DecodeHeads heads;
    heads.first = static_cast<std::int32_t>(first);
    heads.n = plan.n;
    const std::size_t group = plan.heads.size() / static_cast<std::size_t>(plan.key_heads);
    const std::size_t count = std::min<std::size_t>(DecodeHeads::most, plan.heads.size() - first);
    for (std::size_t h = 0; h < count; ++h) {
      heads.head[h] = geometry_of(plan, first + h);
      heads.key_head[h] = static_cast<std::int32_t>((first + h) / group);
    }
    f(heads, static_cast<unsigned>(count));
  }
}

void check_sizes(const Tensor& v) {
  if (v.size(3) > 32 * decode_dims) throw std::logic_error("decoding heads of more than 128");
}

}  // namespace

void append(const AppendArgs& args, const Launch& launch) {
  check_sizes(args.k);
  check_sizes(args.v);
  const std::int64_t rows = args.k.size(1);
  const auto batch = static_cast<unsigned>(args.k.size(0));
  const unsigned slices = blocks_for(std::min<std::int64_t>(rows, 512), warps);
  with_gpu_type(args.k.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_heads(*args.cache.plan, [&](const DecodeHeads& heads, unsigned count) {
      run("append", append_rows<T>, {dim3(count, batch, slices), threads}, launch, heads, StridedRows<const T>(args.k),
          StridedRows<const T>(args.v), CacheRows<T>(args.cache.keys), CacheRows<T>(args.cache.values), rows,
          args.first, args.first_at);
    });
  });
}

void decode(const DecodeArgs& args, const Launch& launch) {
  check_sizes(args.q);
  check_sizes(args.o);
  const auto batch = static_cast<unsigned>(args.q.size(0));
  with_gpu_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_heads(*args.cache.plan, [&](const DecodeHeads& heads, unsigned count) {
      run("decode", decode_rows<T>, {dim3(count, batch), threads}, launch, heads, StridedRows<const T>(args.q),
          CacheRows<const T>(args.cache.keys), CacheRows<const T>(args.cache.values), StridedRows<T>(args.o),
          args.sink.as<const float>(), args.position, args.position_at, static_cast<float>(args.scale));
    });
  });
}

}  // namespace longstride::kernels::cuda
