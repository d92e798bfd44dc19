// Attention of one query by warps that need not wait for each other: each has its own share of the keys, which it
// fetches into its own memory, a chunk of 32 at a time, long before the query is known. A warp's result is what the
// softmax of its keys alone needs to be merged: the top score, the total and the weighted sums.
#pragma once
#include "kernels/generate/cluster.cuh"
#include "kernels/generate/cluster_ptx.cuh"

namespace longstride::kernels::cuda::generation {

// A warp's memory for keys and values, `slots` chunks, and a barrier for each, of 32 arrivals.
template <class T>
class KeyRing {
 public:
  static constexpr int pack = 16 / static_cast<int>(sizeof(T));

  __host__ __device__ static int key_pitch(int key_size) { return key_size + pack; }
  __host__ __device__ static int chunk_bytes(int key_size, int value_size) {
    return chunk_keys * (key_pitch(key_size) + value_size) * static_cast<int>(sizeof(T));
  }

  // Places in shared memory, in bytes.
  __device__ KeyRing(int memory, int barriers, int slots, const Heads& heads)
      : memory_(memory), barriers_(barriers), slots_(slots), heads_(heads) {}

  __device__ int slots() const { return slots_; }
  __device__ T* keys(int slot) const {
    return reinterpret_cast<T*>(block_memory() + memory_ + slot * chunk_bytes(heads_.key_size, heads_.value_size));
  }
  __device__ T* values(int slot) const { return keys(slot) + chunk_keys * key_pitch(heads_.key_size); }

  // The next chunk, on its way into the slot whose turn it is.
  __device__ void fetch(const KeyPlan& plan, const KeyShare& share, int chunk, const Cache<T>& cache) {
    int key_packs = heads_.key_size / pack;
    asm volatile("" : "+r"(key_packs));  // what follows from it is to be worked out here, not before the caller's loop
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int packs = key_packs + heads_.value_size / pack, shift = 32 - __clz(packs - 1);  // a power of two a key
    const int mine = lane < share.keys_of(chunk) ? plan.row(share.begin + chunk * chunk_keys + lane) : -1;
    const int part = lane & ((1 << shift) - 1);
    const bool of_key = part < key_packs;
    const int size = of_key ? heads_.key_size : heads_.value_size,
              pitch = of_key ? key_pitch(heads_.key_size) : heads_.value_size;
    const int column = (of_key ? part : part - key_packs) * pack;
    const T* source = (of_key ? cache.keys : cache.values) + column;
    const std::uint32_t target = shared_address((of_key ? keys(fetched_.slot) : values(fetched_.slot)) + column);
    for (int first = 0; first < chunk_keys; first += 32 >> shift) {
      const int key = first + (lane >> shift), row = __shfl_sync(0xFFFFFFFFu, mine, key);
      if (row >= 0 && part < packs)
        copy_pack(target + static_cast<std::uint32_t>(key * pitch) * static_cast<std::uint32_t>(sizeof(T)),
                  source + static_cast<std::int64_t>(row) * size);
    }
    copies_arrive(barrier(fetched_.slot));
    fetched_.next(slots_);
  }

  // The oldest chunk that was fetched; after its use, `release`.
  __device__ int receive() const {
    await(barrier(used_.slot), used_.parity);
    return used_.slot;
  }
  __device__ void release() {
    __syncwarp();
    used_.next(slots_);
  }

 private:
  __device__ std::uint64_t* barrier(int slot) const {
    return reinterpret_cast<std::uint64_t*>(block_memory() + barriers_) + slot;
  }

  int memory_, barriers_, slots_;
  const Heads& heads_;
  Turn fetched_, used_;
};

// What a warp has found of its keys. After `reduce`, sum[0] to sum[width - 1] are of the columns from `column` on.
struct Found {
  float top = -INFINITY, total = 0;
  float sum[8] = {};
  int column = 0, width = 8;

  // Over the lanes that have the same columns: those whose numbers are equal modulo `groups`, a power of two. Every
  // step halves the columns of a lane while there are several.
  __device__ void reduce(int groups) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    total = warp_sum(total);
    column = (lane & (groups - 1)) * 8;
    int offset = 16;
#pragma unroll
    for (int half = 4; half > 0; half /= 2) {
      if (offset < groups) continue;
      const bool upper = (lane & offset) != 0;
#pragma unroll
      for (int e = 0; e < half; ++e) {
        const float other = __shfl_xor_sync(0xFFFFFFFFu, upper ? sum[e] : sum[e + half], offset);
        sum[e] = (upper ? sum[e + half] : sum[e]) + other;
      }
      column += upper ? half : 0;
      width = half;
      offset /= 2;
    }
    for (; offset >= groups; offset /= 2) sum[0] += __shfl_xor_sync(0xFFFFFFFFu, sum[0], offset);
  }
};

// The largest of a warp's, which are no NaNs: integers have an instruction for it.
__device__ __forceinline__ float largest_of_warp(float x) {
  const int bits = static_cast<int>(__float_as_uint(x)), ordered = bits ^ (bits >> 31 & 0x7FFFFFFF);
  const int top = __reduce_max_sync(0xFFFFFFFFu, ordered);
  return __uint_as_float(static_cast<std::uint32_t>(top ^ (top >> 31 & 0x7FFFFFFF)));
}

// In four sums, which need not wait for each other.
template <class T>
__device__ __forceinline__ float score_of_key(const T* key, const float* query, int size) {
  constexpr int pack = KeyRing<T>::pack;
  float sums[4] = {};
#pragma unroll 4
  for (int d = 0; d < size; d += pack) {
    float k[pack];
    load<pack>(key + d, k);
#pragma unroll
    for (int e = 0; e < pack; e += 4) {
      const float4 q = *reinterpret_cast<const float4*>(query + d + e);
      sums[0] += k[e] * q.x, sums[1] += k[e + 1] * q.y, sums[2] += k[e + 2] * q.z, sums[3] += k[e + 3] * q.w;
    }
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// One chunk of 16-bit keys and values, of which `count` are there.
template <class T>
__device__ __forceinline__ void attend_chunk(const T* keys, const T* values, int count, const float* query,
                                             const Heads& heads, Found& found) {
  constexpr int pack = KeyRing<T>::pack;
  static_assert(pack == 8);
  const int lane = static_cast<int>(threadIdx.x) % 32, dv = heads.value_size,
            group_shift = 31 - __clz(dv / pack);  // a power of two; a division would take a hundred cycles
  const float score = lane < count
                          ? score_of_key(keys + lane * KeyRing<T>::key_pitch(heads.key_size), query, heads.key_size)
                          : -INFINITY;
  const float top = fmaxf(found.top, largest_of_warp(score)), shrink = expf(found.top - top);
  const float weight = lane < count ? expf(score - top) : 0.0f;
  found.top = top;
  found.total = found.total * shrink + weight;  // of this lane
#pragma unroll
  for (float& x : found.sum) x *= shrink;
  const int slices = 32 >> group_shift, group = lane & ((1 << group_shift) - 1), slice = lane >> group_shift;
#pragma unroll 4
  for (int first = 0; first < chunk_keys; first += slices) {
    const int key = first + slice;
    const float share = __shfl_sync(0xFFFFFFFFu, weight, key);
    if (key >= count) continue;
    float v[pack];
    load<pack>(values + key * dv + group * pack, v);
#pragma unroll
    for (int e = 0; e < pack; ++e) found.sum[e] += share * v[e];
  }
}

// The warp's share of a unit: its first chunks have been fetched, as many as there are slots. `fresh`: this position's
// own key and value, which the cache did not have when the chunks were fetched; `self`: its
// place among the unit's keys. `cache()` is asked for where there are more chunks than slots.
template <class T, class F>
__device__ __forceinline__ Found attend_share(const Heads& heads, const KeyPlan& plan, int self, const KeyShare& share,
                                              F&& cache, KeyRing<T>& ring, const float* query, const T* fresh_key,
                                              const T* fresh_value) {
  constexpr int pack = KeyRing<T>::pack;
  const int lane = static_cast<int>(threadIdx.x) % 32, key_packs = heads.key_size / pack;
  const int packs = key_packs + heads.value_size / pack, chunks = share.chunks();
  Found found;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int slot = ring.receive(), count = share.keys_of(chunk);
    const int own = self - share.begin - chunk * chunk_keys;
    if (own >= 0 && own < count && self < share.end) {
      T* key = ring.keys(slot) + own * KeyRing<T>::key_pitch(heads.key_size);
      T* value = ring.values(slot) + own * heads.value_size;
      if (lane < packs)
        *reinterpret_cast<uint4*>(lane < key_packs ? key + lane * pack : value + (lane - key_packs) * pack) =
            *reinterpret_cast<const uint4*>(lane < key_packs ? fresh_key + lane * pack
                                                             : fresh_value + (lane - key_packs) * pack);
      __syncwarp();
    }
    attend_chunk(ring.keys(slot), ring.values(slot), count, query, heads, found);
    ring.release();
    if (chunk + ring.slots() < chunks) ring.fetch(plan, share, chunk + ring.slots(), cache());
  }
  found.reduce(heads.value_size / pack);
  return found;
}

}  // namespace longstride::kernels::cuda::generation
