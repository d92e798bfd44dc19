// Attention of one query by warps that do not wait for each other: each warp copies its own share of the keys into its
// own memory, at most 64 at a time, long before the query is known. Its result is the softmax over its keys in a form
// that can be merged: the top score, the total and the weighted sums.
#pragma once
#include "framework/models/decoder/generate/cluster.cuh"
#include "framework/models/decoder/generate/cluster_memory.cuh"
#include "kernels/gpu/barrier.cuh"
#include "kernels/gpu/copy.cuh"

namespace longstride::generation {

// A warp's memory for keys and values: key_slots chunks, each with a barrier of 32 arrivals.
template <class T>
class KeyRing {
 public:
  static constexpr int pack = 16 / static_cast<int>(sizeof(T));

  __host__ __device__ static int slot_bytes(const Cluster& c, int value_size) {
    return c.slot_keys * (c.key_layout.pitch + value_size) * static_cast<int>(sizeof(T));
  }

  // The memory of the block's warp `reader`.
  __device__ KeyRing(int reader, const Cluster& cluster, const GenerationHeads& heads)
      : memory_(cluster.keys + reader * cluster.key_slots * slot_bytes(cluster, heads.value_size)),
        barriers_(cluster.barriers + 8 * cluster.keys_barrier(reader)),
        c_(cluster),
        heads_(heads) {}

  __device__ T* keys(int slot) const {
    return reinterpret_cast<T*>(block_memory() + memory_ + slot * slot_bytes(c_, heads_.value_size));
  }
  __device__ T* values(int slot) const { return keys(slot) + c_.slot_keys * c_.key_layout.pitch; }
  __device__ int keys_of(const KeyShare& share, int chunk) const {
    return min(share.end - share.begin - chunk * c_.slot_keys, c_.slot_keys);
  }

  // Starts to copy the next chunk into the next slot.
  __device__ void fetch(const KeyPlan& plan, const KeyShare& share, int chunk, const HeadCache<T>& cache) {
    int key_packs = heads_.key_size / pack;
    asm volatile("" : "+r"(key_packs));  // keeps what depends on it from being hoisted out of the caller's loop
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int packs = key_packs + heads_.value_size / pack, shift = 32 - __clz(packs - 1);  // 2^shift lanes per key
    const int begin = share.begin + chunk * c_.slot_keys, count = keys_of(share, chunk);
    const int mine[2] = {lane < count ? plan.row(begin + lane) : -1,
                         lane + 32 < count ? plan.row(begin + lane + 32) : -1};
    const int part = lane & ((1 << shift) - 1);
    const bool of_key = part < key_packs;
    const int size = of_key ? heads_.key_size : heads_.value_size,
              pitch = of_key ? c_.key_layout.pitch : heads_.value_size;
    const int column = of_key ? part : part - key_packs;  // in packs
    const T* source = (of_key ? cache.keys : cache.values) + column * pack;
    const T* target = of_key ? keys(fetched_.index) : values(fetched_.index);
    for (int first = 0; first < count; first += 32 >> shift) {
      const int key = first + (lane >> shift);
      const int row = __shfl_sync(0xFFFFFFFFu, first < 32 ? mine[0] : mine[1], key % 32);
      const int turned = of_key ? column ^ c_.key_layout.turn(key) : column;
      if (row >= 0 && part < packs)
        copy_async_16(shared_address(target + key * pitch + turned * pack),
                      source + static_cast<std::int64_t>(row) * size);
    }
    copies_arrive(barrier(fetched_.index));
    fetched_.advance(c_.key_slots);
  }

  // Waits for the oldest fetched chunk; call `release` after its use.
  __device__ int receive() const {
    barrier_wait_or_trap(barrier(used_.index), used_.parity);
    return used_.index;
  }
  __device__ void release() {
    __syncwarp();
    used_.advance(c_.key_slots);
  }

 private:
  __device__ std::uint64_t* barrier(int slot) const {
    return reinterpret_cast<std::uint64_t*>(block_memory() + barriers_) + slot;
  }

  int memory_, barriers_;
  const Cluster& c_;
  const GenerationHeads& heads_;
  RingSlot fetched_, used_;
};

// A warp's result over its keys. After `reduce`, sum[0] to sum[width - 1] belong to the columns from `column` on.
struct AttendedShare {
  float top = -INFINITY, total = 0;
  float sum[8] = {};
  int column = 0, width = 8;

  // Sums over the lanes that have the same columns: those with equal numbers modulo `groups`, a power of two. Every
  // step halves the columns of a lane until one is left.
  __device__ void reduce(int groups) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    total = warp_sum(total);
    column = (lane & (groups - 1)) * 8;
    int offset = 16;
#pragma unroll
    for (int half = 4; half > 0; half /= 2) {
      if (offset < groups) continue;
      column += keep_half(sum, half, offset) ? half : 0;
      width = half;
      offset /= 2;
    }
    for (; offset >= groups; offset /= 2) sum[0] += __shfl_xor_sync(0xFFFFFFFFu, sum[0], offset);
  }
};

// The maximum over a warp, without NaNs. Ordered as integers, because there is an instruction for those.
__device__ __forceinline__ float largest_of_warp(float x) {
  const int bits = static_cast<int>(__float_as_uint(x)), ordered = bits ^ (bits >> 31 & 0x7FFFFFFF);
  const int top = __reduce_max_sync(0xFFFFFFFFu, ordered);
  return __uint_as_float(static_cast<std::uint32_t>(top ^ (top >> 31 & 0x7FFFFFFF)));
}

// q k in four independent sums. `turn`: that of the key's row (KeyLayout).
template <class T>
__device__ __forceinline__ float score_of_key(const T* key, int turn, const float* query, int size) {
  constexpr int pack = KeyRing<T>::pack;
  float sums[4] = {};
#pragma unroll 4
  for (int d = 0; d < size; d += pack) {
    float k[pack];
    load<pack>(key + (d / pack ^ turn) * pack, k);
#pragma unroll
    for (int e = 0; e < pack; e += 4) {
      const float4 q = *reinterpret_cast<const float4*>(query + d + e);
      sums[0] += k[e] * q.x, sums[1] += k[e + 1] * q.y, sums[2] += k[e + 2] * q.z, sums[3] += k[e + 3] * q.w;
    }
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// One chunk of `count` 16-bit keys and values. A lane has the scores of two keys.
template <class T>
__device__ __forceinline__ void attend_chunk(const T* keys, const T* values, int count, const float* query,
                                             const GenerationHeads& heads, const KeyLayout& layout,
                                             AttendedShare& found) {
  constexpr int pack = KeyRing<T>::pack;
  static_assert(pack == 8);
  const int lane = static_cast<int>(threadIdx.x) % 32, dv = heads.value_size,
            group_shift = 31 - __clz(dv / pack);  // a power of two; a division would take a hundred cycles
  const auto score = [&](int key) {
    return key < count ? score_of_key(keys + key * layout.pitch, layout.turn(key), query, heads.key_size) : -INFINITY;
  };
  const float first_score = score(lane), second_score = count > 32 ? score(lane + 32) : -INFINITY;
  const float top = fmaxf(found.top, largest_of_warp(fmaxf(first_score, second_score)));
  const float shrink = expf(found.top - top);
  const float first_weight = expf(first_score - top), second_weight = expf(second_score - top);
  found.top = top;
  found.total = found.total * shrink + first_weight + second_weight;  // this lane's share
#pragma unroll
  for (float& x : found.sum) x *= shrink;
  const int slices = 32 >> group_shift, group = lane & ((1 << group_shift) - 1), slice = lane >> group_shift;
#pragma unroll 4
  for (int first = 0; first < count; first += slices) {
    const int key = first + slice;
    const float share = __shfl_sync(0xFFFFFFFFu, first < 32 ? first_weight : second_weight, key % 32);
    float v[pack];
    load<pack>(values + min(key, count - 1) * dv + group * pack, v);  // absent keys have weight 0
#pragma unroll
    for (int e = 0; e < pack; ++e) found.sum[e] += share * v[e];
  }
}

// The warp's share of a unit. As many chunks as there are slots have been fetched; further ones are read from
// `cache()`. `fresh_key` and `fresh_value`: this position's own, which the cache did not have when the chunks were
// fetched; `self`: its index among the unit's keys.
template <class T, class F>
__device__ __forceinline__ AttendedShare attend_share(const GenerationHeads& heads, const Cluster& c,
                                                      const KeyPlan& plan, int self, const KeyShare& share, F&& cache,
                                                      KeyRing<T>& ring, const float* query, const T* fresh_key,
                                                      const T* fresh_value) {
  constexpr int pack = KeyRing<T>::pack;
  const int lane = static_cast<int>(threadIdx.x) % 32, key_packs = heads.key_size / pack;
  const int packs = key_packs + heads.value_size / pack;
  AttendedShare found;
  for (int chunk = 0; chunk < share.chunks; ++chunk) {
    const int slot = ring.receive(), count = ring.keys_of(share, chunk);
    const int own = self - share.begin - chunk * c.slot_keys;
    if (own >= 0 && own < count) {
      T* key = ring.keys(slot) + own * c.key_layout.pitch;
      T* value = ring.values(slot) + own * heads.value_size;
      if (lane < packs)
        *reinterpret_cast<uint4*>(lane < key_packs ? key + (lane ^ c.key_layout.turn(own)) * pack
                                                   : value + (lane - key_packs) * pack) =
            *reinterpret_cast<const uint4*>(lane < key_packs ? fresh_key + lane * pack
                                                             : fresh_value + (lane - key_packs) * pack);
      __syncwarp();
    }
    attend_chunk(ring.keys(slot), ring.values(slot), count, query, heads, c.key_layout, found);
    ring.release();
    if (chunk + c.key_slots < share.chunks) ring.fetch(plan, share, chunk + c.key_slots, cache());
  }
  found.reduce(heads.value_size / pack);
  return found;
}

}  // namespace longstride::generation
