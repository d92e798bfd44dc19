// Attention of one query over the cache by one thread block. The keys of a head may be split between several blocks;
// the blocks of the next product merge the results. Cached keys and values are copied to shared memory before the query
// is known.
#pragma once
#include "framework/models/decoder/generate/exchange.cuh"
#include "framework/models/decoder/generate/product.cuh"
#include "kernels/attention/decode/decode_geometry.h"
#include "kernels/gpu/copy.cuh"
#include "kernels/query_key/query_key.cuh"

namespace longstride::generation {

constexpr int most_value_columns = 128;

struct HeadEntry {
  std::int64_t first_row;  // first row of the head's first ring; the geometry's rows count from it
  std::int32_t geometry;
};

struct GenerationHeads {
  const HeadGeometry* geometry;
  const HeadEntry* entries;  // (plan, head)
  int count, key_size, value_size, splits;
  std::int32_t n;
  float scale;
  bool transformed, normalised;  // queries and keys (kernels/query_key/query_key.h)
  const float2* rotation;        // cosine and sine of every pair at this position

  __host__ __device__ int unit_words() const { return value_size + 2; }
};

// The keys that a unit (sequence, head, split) reads at a position in all layers of one plan; made once per position.
struct KeyPlan {
  KeyLine lines[HeadGeometry::most_parts];
  KeyRows rows[HeadGeometry::most_parts];  // for keys that are not on a line
  int counts[HeadGeometry::most_parts];
  int ring_row[HeadGeometry::most_parts];  // where this position's key and value are stored; -1: nowhere
  int parts, begin, end, self;             // keys [begin, end) of this split; index of the position's own key

  // The cache's row of a key; -1 for the position's own, which is not in the cache yet.
  __device__ int row(int index) const {
    if (index == self) return -1;
    int part = 0;
    while (part + 1 < parts && index >= counts[part]) index -= counts[part++];
    const KeyLine line = lines[part];
    return line.step > 0 ? line.row(index) : static_cast<int>(rows[part].row(index));
  }
};

template <class T>
struct HeadCache {
  T* keys;
  T* values;  // both of one sequence
};

struct AttendUnit {
  int sequence, head, split;
  __device__ AttendUnit(int number, const GenerationHeads& heads)
      : sequence(number / (heads.count * heads.splits)),
        head(number / heads.splits % heads.count),
        split(number % heads.splits) {}
};

// Called by one warp.
__device__ inline void plan_keys(const GenerationHeads& heads, int plan, const AttendUnit& unit, std::int32_t position,
                                 KeyPlan& out) {
  const HeadEntry entry = heads.entries[plan * heads.count + unit.head];
  const HeadGeometry& g = heads.geometry[entry.geometry];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int count = 0, self = -1;
  if (lane < g.part_count) {
    KeyRows rows = key_rows_of(g, lane, heads.n, position);
    rows.first_row += entry.first_row;
    count = rows.count();
    const std::int32_t at = rows.keys.count_below(position);
    if (rows.keys.count_below(position + 1) > at && at >= rows.in.begin && at < rows.in.end) self = at - rows.in.begin;
    out.lines[lane] = key_line_of(rows);
    out.rows[lane] = rows;
    out.counts[lane] = count;
  }
  if (lane < HeadGeometry::most_parts) {
    const std::int64_t row = lane < g.ring_count ? ring_row(g.rings[lane], position) : -1;
    out.ring_row[lane] = row < 0 ? -1 : static_cast<int>(row + entry.first_row);
  }
  int total = 0, own = -1;
  for (int p = 0; p < g.part_count; ++p) {
    const int c = __shfl_sync(0xFFFFFFFFu, count, p), s = __shfl_sync(0xFFFFFFFFu, self, p);
    if (s >= 0) own = total + s;
    total += c;
  }
  if (lane == 0) {
    out.parts = g.part_count;
    out.begin = static_cast<int>(static_cast<std::int64_t>(total) * unit.split / heads.splits);
    out.end = static_cast<int>(static_cast<std::int64_t>(total) * (unit.split + 1) / heads.splits);
    out.self = own;
  }
}

template <class T>
struct SharedStaging {
  static constexpr int pack = 16 / static_cast<int>(sizeof(T));

  T* keys;          // (most, key pitch)
  T* values;        // (most, value size)
  float* scores;    // (most)
  float* query;     // query, key and value of the position
  float* partials;  // (warps, value size)
  int* list;        // (most): rows of the keys that did not fit at first
  int most;         // keys that fit at once

  __host__ __device__ static int key_pitch(int key_size) { return key_size + pack; }
};

// Starts to copy `count` keys, whose rows are in `list`. Called by threads [from, threads).
template <class T>
__device__ inline void fetch_keys(const GenerationHeads& heads, const HeadCache<const T>& cache, const int* list,
                                  int count, const SharedStaging<T>& to, int from) {
  const int key_packs = heads.key_size / SharedStaging<T>::pack,
            packs = key_packs + heads.value_size / SharedStaging<T>::pack;
  const int shift = 32 - __clz(packs - 1),
            pitch = SharedStaging<T>::key_pitch(heads.key_size);  // 2^shift lanes per key
  const int thread = static_cast<int>(threadIdx.x) - from, pack = thread & ((1 << shift) - 1);
  if (thread < 0 || pack >= packs) return;
  const bool of_key = pack < key_packs;
  const int size = of_key ? heads.key_size : heads.value_size, target_pitch = of_key ? pitch : heads.value_size;
  const int column = (of_key ? pack : pack - key_packs) * SharedStaging<T>::pack;
  const T* source = (of_key ? cache.keys : cache.values) + column;
  const std::uint32_t target = shared_address((of_key ? to.keys : to.values) + column);
  for (int key = thread >> shift; key < count; key += (threads - from) >> shift) {
    const int row = list[key];
    if (row >= 0)
      copy_async_16(target + static_cast<unsigned>(key * target_pitch) * static_cast<unsigned>(sizeof(T)),
                    source + static_cast<std::int64_t>(row) * size);
  }
}

// Receives, normalises, rotates and scales a query or key. Called by one warp: two pairs per lane.
__device__ inline void receive_transformed(const Word* words, int size, std::uint32_t tag, bool normalised, float scale,
                                           const float2* rotation, float* row) {
  static_assert(most_transformed <= 2 * 2 * 32);
  const int lane = static_cast<int>(threadIdx.x) % 32, pairs = size / 2;
  float x[2][2] = {}, squares = 0;
  receive_pairs<2>(words, size, tag, lane, 32, x);
  for (const auto& pair : x) squares += pair[0] * pair[0] + pair[1] * pair[1];
  if (normalised)
    scale /= sqrtf(warp_sum(squares) / static_cast<float>(size) + static_cast<float>(QueryKeyTransform::epsilon));
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const int i = lane + 32 * k;
    if (i >= pairs) break;
    const float2 turn = rotation[i];
    reinterpret_cast<float2*>(row)[i] =
        make_float2(scale * (x[k][0] * turn.x - x[k][1] * turn.y), scale * (x[k][0] * turn.y + x[k][1] * turn.x));
  }
}

// Receives the position's query, key and value. Key and value are also stored in the cache and, if they are among the
// first staged keys, in staging.
template <bool transforms, class T>
__device__ inline void receive_query(const GenerationHeads& heads, const KeyPlan& plan, const AttendUnit& unit,
                                     const HeadCache<T>& cache, const SharedStaging<T>& stage, const Word* words,
                                     std::uint32_t tag) {
  const int thread = static_cast<int>(threadIdx.x), dk = heads.key_size, dv = heads.value_size, all = heads.count * dk;
  const int own = plan.self - plan.begin;
  const bool staged = plan.self >= plan.begin && plan.self < plan.end && own < stage.most, stored = unit.split == 0;
  const auto keep = [&](T* rows, int size, int d, T x) {
#pragma unroll
    for (int r = 0; r < HeadGeometry::most_parts; ++r)
      if (plan.ring_row[r] >= 0) rows[static_cast<std::int64_t>(plan.ring_row[r]) * size + d] = x;
  };
  const auto keep_key = [&](int d, float x) {
    stage.query[dk + d] = x;
    if (staged) stage.keys[own * SharedStaging<T>::key_pitch(dk) + d] = from_float<T>(x);
    if (stored) keep(cache.keys, dk, d, from_float<T>(x));
  };
  if constexpr (transforms) {
    const int warp = thread / 32, lane = thread % 32;
    if (warp < 2) {  // the query's and the key's
      float* row = stage.query + warp * dk;
      receive_transformed(words + warp * all + unit.head * dk, dk, tag, heads.normalised,
                          warp == 0 ? heads.scale : 1.0f, heads.rotation, row);
      __syncwarp();
      for (int d = lane; d < dk && warp == 1; d += 32) keep_key(d, row[d]);
    }
  } else {
    receive<1>(words + unit.head * dk, dk, tag, thread, threads,
               [&](int d, std::uint32_t x) { stage.query[d] = heads.scale * __uint_as_float(x); });
    receive<1>(words + all + unit.head * dk, dk, tag, (thread + threads - 64) % threads, threads,
               [&](int d, std::uint32_t x) { keep_key(d, __uint_as_float(x)); });
  }
  receive<1>(words + 2 * all + unit.head * dv, dv, tag, (thread + threads - 128) % threads, threads,
             [&](int d, std::uint32_t w) {
               const float x = __uint_as_float(w);
               stage.query[2 * dk + d] = x;
               if (staged) stage.values[own * dv + d] = from_float<T>(x);
               if (stored) keep(cache.values, dv, d, from_float<T>(x));
             });
}

// Copies keys that did not fit at first.
template <class T>
__device__ inline void fetch_more(const GenerationHeads& heads, const KeyPlan& plan, const HeadCache<T>& cache,
                                  const SharedStaging<T>& stage, int first, int count) {
  const int thread = static_cast<int>(threadIdx.x), dk = heads.key_size, dv = heads.value_size;
  __syncthreads();  // the previous keys are still being read
  for (int key = thread; key < count; key += threads) stage.list[key] = plan.row(first + key);
  __syncthreads();
  fetch_keys<T>(heads, {cache.keys, cache.values}, stage.list, count, stage, 0);
  const int own = plan.self - first;
  if (own < 0 || own >= count) return;
  for (int d = thread; d < dk; d += threads)
    stage.keys[own * SharedStaging<T>::key_pitch(dk) + d] = from_float<T>(stage.query[dk + d]);
  for (int d = thread; d < dv; d += threads) stage.values[own * dv + d] = from_float<T>(stage.query[2 * dk + d]);
}

template <class T>
__device__ __forceinline__ float score_of(const T* key, const float* query, int size) {
  constexpr int pack = SharedStaging<T>::pack;
  float dot = 0;
#pragma unroll 4
  for (int d = 0; d < size; d += pack) {
    float k[pack], q[pack];
    load<pack>(key + d, k);
#pragma unroll
    for (int e = 0; e < pack; e += 4) {
      const float4 four = *reinterpret_cast<const float4*>(query + d + e);
      q[e] = four.x, q[e + 1] = four.y, q[e + 2] = four.z, q[e + 3] = four.w;
    }
#pragma unroll
    for (int e = 0; e < pack; ++e) dot += k[e] * q[e];
  }
  return dot;
}

// The copy of the first keys to staging has been started. `words`: query, key and value rows of the unit's sequence.
// `out` receives value_size sums and, with several splits, the top score and the total. `transforms`: whether queries
// and keys are transformed.
template <class T, bool transforms>
__device__ inline void attend(const GenerationHeads& heads, const KeyPlan& plan, const AttendUnit& unit,
                              const HeadCache<T>& cache, const SharedStaging<T>& stage, const Word* words, Word* out,
                              std::uint32_t tag) {
  constexpr int pack = SharedStaging<T>::pack;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int dk = heads.key_size, dv = heads.value_size, pitch = SharedStaging<T>::key_pitch(dk);
  const int groups = dv / pack, group = thread & (groups - 1), slices = threads / groups, slice = thread / groups;
  receive_query<transforms>(heads, plan, unit, cache, stage, words, tag);
  float sum[pack] = {}, top = -INFINITY, total = 0;
  for (int first = plan.begin; first < plan.end; first += stage.most) {
    const int count = plan.end - first < stage.most ? plan.end - first : stage.most;
    if (first != plan.begin) fetch_more(heads, plan, cache, stage, first, count);
    copies_wait_all();
    __syncthreads();
    for (int key = thread; key < count; key += threads)
      stage.scores[key] = score_of(stage.keys + key * pitch, stage.query, dk);
    __syncthreads();
    float most = top;
#pragma unroll 4
    for (int key = lane; key < count; key += 32) most = fmaxf(most, stage.scores[key]);
    most = warp_max(most);
    const float shrink = __expf(top - most);
    top = most;
    float mine = 0;
#pragma unroll 4
    for (int key = lane; key < count; key += 32) mine += expf(stage.scores[key] - top);
    total = total * shrink + mine;  // this lane's part
#pragma unroll
    for (int e = 0; e < pack; ++e) sum[e] *= shrink;
#pragma unroll 2
    for (int key = slice; key < count; key += slices) {
      const float weight = expf(stage.scores[key] - top);
      float v[pack];
      load<pack>(stage.values + key * dv + group * pack, v);
#pragma unroll
      for (int e = 0; e < pack; ++e) sum[e] += weight * v[e];
    }
  }
  total = warp_sum(total);
#pragma unroll
  for (int e = 0; e < pack; ++e)
    for (int offset = groups; offset < 32; offset *= 2) sum[e] += __shfl_xor_sync(0xFFFFFFFFu, sum[e], offset);
  if (lane < groups)
#pragma unroll
    for (int e = 0; e < pack; ++e) stage.partials[warp * dv + lane * pack + e] = sum[e];
  __syncthreads();
  if (thread < dv) {
    float x = 0;
#pragma unroll
    for (int w = 0; w < warps; ++w) x += stage.partials[w * dv + thread];
    if (heads.splits == 1 && total > 0) x /= total;
    send(out + thread, x, tag);
  }
  if (heads.splits > 1 && thread == threads - 1) {
    send(out + dv, top, tag);
    send(out + dv + 1, total, tag);
  }
}

}  // namespace longstride::generation
