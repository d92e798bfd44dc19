// Attention of one query over the cache by one block. The keys of a head may be split over several blocks; the
// products' blocks merge them. Old keys and values are on their way to shared memory before the query is known.
#pragma once
#include "kernels/attention/decode_geometry.h"
#include "kernels/generate/exchange.cuh"
#include "kernels/generate/product.cuh"

namespace longstride::kernels::cuda::generation {

constexpr int most_value_columns = 128;

struct HeadEntry {
  std::int64_t first_row;  // of the head's first ring; a geometry's rows count from there
  std::int32_t geometry;
};

struct Heads {
  const HeadGeometry* geometry;
  const HeadEntry* entries;  // (plan, head)
  int count, key_size, value_size, splits;
  std::int32_t n;
  float scale;

  __host__ __device__ int unit_words() const { return value_size + 2; }
};

// What a unit (sequence, head, split) is about to read.
struct KeyPlan {
  KeyRows rows[HeadGeometry::most_parts];
  int counts[HeadGeometry::most_parts];
  std::int64_t ring_row[HeadGeometry::most_parts];  // where this position's key and value go; -1: nowhere
  int parts, rings, begin, end, self;               // keys of this split, and the position's own among all
};

template <class T>
struct Cache {
  T* keys;
  T* values;  // of one sequence
};

struct Unit {
  int sequence, head, split;
  __device__ Unit(int number, const Heads& heads)
      : sequence(number / (heads.count * heads.splits)),
        head(number / heads.splits % heads.count),
        split(number % heads.splits) {}
};

// By one warp.
__device__ inline void plan_keys(const Heads& heads, int plan, const Unit& unit, std::int32_t position, KeyPlan& out) {
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
    out.rows[lane] = rows;
    out.counts[lane] = count;
  }
  if (lane < g.ring_count) {
    const std::int64_t row = ring_row(g.rings[lane], position);
    out.ring_row[lane] = row < 0 ? -1 : row + entry.first_row;
  }
  int before = 0, total = 0, own = -1;
  for (int p = 0; p < g.part_count; ++p) {
    const int c = __shfl_sync(0xFFFFFFFFu, count, p), s = __shfl_sync(0xFFFFFFFFu, self, p);
    if (s >= 0) own = before + s;
    before += c;
  }
  total = before;
  if (lane == 0) {
    out.parts = g.part_count;
    out.rings = g.ring_count;
    out.begin = static_cast<int>(static_cast<std::int64_t>(total) * unit.split / heads.splits);
    out.end = static_cast<int>(static_cast<std::int64_t>(total) * (unit.split + 1) / heads.splits);
    out.self = own;
  }
}

template <class T>
struct Staging {
  static constexpr int pack = 16 / static_cast<int>(sizeof(T));

  T* keys;          // (most, key pitch)
  T* values;        // (most, value size)
  float* scores;    // (most)
  float* query;     // query, key and value of the position
  float* partials;  // (warps, value size)
  int most;         // keys at once

  __host__ __device__ static int key_pitch(int key_size) { return key_size + pack; }
  __host__ __device__ static std::size_t row_bytes(int key_size, int value_size) {
    return static_cast<std::size_t>(key_pitch(key_size) + value_size) * sizeof(T) + sizeof(float);
  }
};

// Keys [first, first + count) of the unit's are copied, but for the position's own. By threads [from, threads).
template <class T>
__device__ inline void fetch_keys(const Heads& heads, const KeyPlan& plan, const Cache<const T>& cache, int first,
                                  int count, const Staging<T>& to, int from) {
  const int key_packs = heads.key_size / Staging<T>::pack, value_packs = heads.value_size / Staging<T>::pack;
  const int packs = key_packs + value_packs;
  for (int i = static_cast<int>(threadIdx.x) - from; i < count * packs; i += threads - from) {
    if (i < 0) break;
    const int key = i / packs, pack = i - key * packs;
    int index = first + key, part = 0;
    if (index == plan.self) continue;
    while (part + 1 < plan.parts && index >= plan.counts[part]) index -= plan.counts[part++];
    const std::int64_t row = plan.rows[part].row(index);
    const T* source = pack < key_packs ? cache.keys + row * heads.key_size + pack * Staging<T>::pack
                                       : cache.values + row * heads.value_size + (pack - key_packs) * Staging<T>::pack;
    T* target = pack < key_packs ? to.keys + key * Staging<T>::key_pitch(heads.key_size) + pack * Staging<T>::pack
                                 : to.values + key * heads.value_size + (pack - key_packs) * Staging<T>::pack;
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(target))),
        "l"(source)
        : "memory");
  }
}

__device__ __forceinline__ void fetched() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// `staged` keys are in staging already. `slot`: the exchange's query, key and value rows of the unit's sequence; `out`
// receives value_size sums and, with several splits, the top score and the total.
template <class T>
__device__ inline void attend(const Heads& heads, const KeyPlan& plan, const Unit& unit, const Cache<T>& cache,
                              const Staging<T>& stage, int staged, const Word* slot, Word* out, std::uint32_t tag) {
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int dk = heads.key_size, dv = heads.value_size, all = heads.count * dk;
  float* query = stage.query;
  receive<1>(slot + unit.head * dk, dk, tag, thread, threads,
             [&](int d, std::uint32_t x) { query[d] = heads.scale * __uint_as_float(x); });
  receive<1>(slot + all + unit.head * dk, dk, tag, (thread + threads - 128) % threads, threads,
             [&](int d, std::uint32_t x) { query[dk + d] = __uint_as_float(x); });
  receive<1>(slot + 2 * all + unit.head * dv, dv, tag, (thread + threads - 256) % threads, threads,
             [&](int d, std::uint32_t x) { query[2 * dk + d] = __uint_as_float(x); });
  __syncthreads();
  if (unit.split == 0)
    for (int r = 0; r < plan.rings; ++r) {
      if (plan.ring_row[r] < 0) continue;
      for (int d = thread; d < dk + dv; d += threads) {
        const T x = from_float<T>(query[dk + d]);
        if (d < dk)
          cache.keys[plan.ring_row[r] * dk + d] = x;
        else
          cache.values[plan.ring_row[r] * dv + d - dk] = x;
      }
    }
  constexpr int pack = Staging<T>::pack;
  const int groups = dv / pack, slices = threads / groups, group = thread % groups, slice = thread / groups;
  float sum[pack] = {}, top = -INFINITY, total = 0;
  for (int first = plan.begin; first < plan.end; first += stage.most) {
    const int count = plan.end - first < stage.most ? plan.end - first : stage.most;
    if (first != plan.begin) __syncthreads();  // the former keys are still being read
    if (first != plan.begin || staged == 0)
      fetch_keys<T>(heads, plan, {cache.keys, cache.values}, first, count, stage, 0);
    if (plan.self >= first && plan.self < first + count)
      for (int d = thread; d < dk + dv; d += threads) {
        const T x = from_float<T>(query[dk + d]);
        if (d < dk)
          stage.keys[(plan.self - first) * Staging<T>::key_pitch(dk) + d] = x;
        else
          stage.values[(plan.self - first) * dv + d - dk] = x;
      }
    fetched();
    __syncthreads();
    for (int key = thread; key < count; key += threads) {
      const T* row = stage.keys + key * Staging<T>::key_pitch(dk);
      float dot = 0;
      for (int d = 0; d < dk; d += pack) {
        float k[pack];
        load<pack>(row + d, k);
#pragma unroll
        for (int e = 0; e < pack; ++e) dot += k[e] * query[d + e];
      }
      stage.scores[key] = dot;
    }
    __syncthreads();
    float most = top;
    for (int key = lane; key < count; key += 32) most = fmaxf(most, stage.scores[key]);
    most = warp_max(most);
    const float shrink = __expf(top - most);
    top = most;
    float mine = 0;
    for (int key = lane; key < count; key += 32) mine += expf(stage.scores[key] - top);
    total = total * shrink + warp_sum(mine);
#pragma unroll
    for (int e = 0; e < pack; ++e) sum[e] *= shrink;
    for (int key = slice; key < count; key += slices) {
      const float weight = expf(stage.scores[key] - top);
      float v[pack];
      load<pack>(stage.values + key * dv + group * pack, v);
#pragma unroll
      for (int e = 0; e < pack; ++e) sum[e] += weight * v[e];
    }
  }
#pragma unroll
  for (int e = 0; e < pack; ++e)
    for (int offset = groups; offset < 32; offset *= 2) sum[e] += __shfl_xor_sync(0xFFFFFFFFu, sum[e], offset);
  if (lane < groups)
#pragma unroll
    for (int e = 0; e < pack; ++e) stage.partials[warp * dv + lane * pack + e] = sum[e];
  __syncthreads();
  if (thread < dv) {
    float x = 0;
    for (int w = 0; w < warps; ++w) x += stage.partials[w * dv + thread];
    if (heads.splits == 1 && total > 0) x /= total;
    send(out + thread, x, tag);
  }
  if (heads.splits > 1 && thread == threads - 1) {
    send(out + dv, top, tag);
    send(out + dv + 1, total, tag);
  }
}

}  // namespace longstride::kernels::cuda::generation
