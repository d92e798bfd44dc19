// The kernel: as many blocks as the GPU runs at once, one on each multiprocessor, which go through the model in step.
// A layer is five products or sums, each shared out over all blocks, and between two of them every block needs what all
// others have found. That hand-over is what a position costs, not the arithmetic; so
//  - values travel with their tags (exchange.cuh): no barrier, no second round trip;
//  - what does not depend on the hand-over is on its way while a block waits for it: the next matrix's weights in
//    registers, the cached keys and values in shared memory, the next layer's weights in the second-level cache;
//  - what every block can find by itself (embedding, norms, the draw) it does, rather than be told.
// The words of a few layers are used in turn; a barrier between arrival and use divides the turns.
#pragma once
#include "kernels/draw.cuh"
#include "kernels/embedding.h"
#include "kernels/generate/attend.cuh"
#include "kernels/generate/exchange.cuh"
#include "kernels/generate/product.cuh"

namespace longstride::kernels::cuda::generation {

struct LayerEntry {
  std::int64_t keys, values;  // where the layer's cache begins, in bytes from `Problem::cache`
  std::int64_t rows;          // of one sequence
  std::int32_t plan;
};

// A matrix and its bias in the packed weights, in bytes from where its layer begins.
struct Packed {
  std::int64_t blocks, bias;
  std::int32_t tiles, depth, offset;
};
struct Norm {
  std::int64_t gain, bias;
};

struct Table {
  std::int64_t divisor, size;
  const float* rows;
};

struct Problem {
  int layers, width, inner, vocabulary, batch, turn;  // turn: layers whose words are used in turn
  std::int64_t layer_bytes;
  const char* weights;  // layer_bytes a layer, then the head
  Packed qkv, output, feed_inner, feed_outer, logits;
  Norm attention_norm, feed_forward_norm, final_norm;
  const float* start;
  const float* token;
  Table tables[EmbeddingArgs::max_tables];
  int table_count;
  Heads heads;
  int plans, geometries;
  char* cache;
  const LayerEntry* entries;
  Word* words;
  std::int64_t layer_words;
  unsigned* arrived;
  int keys_at_once;
};

struct Positions {
  std::uint8_t* bytes;
  float* log_probabilities;
  std::int64_t length, prompted, first_sequence;
  std::int32_t first, count;
  Sampling sampling;
};

// Where a layer's words are.
struct Words {
  Word *qkv, *mixed, *middle, *inner, *out;
};

template <class T>
__host__ __device__ constexpr int values_in_word() {
  return sizeof(T) == 2 ? 2 : 1;
}

template <class T>
__host__ __device__ inline std::int64_t words_of(const Problem& p, Word* base, Words& w) {
  const std::int64_t b = p.batch, qkv = p.heads.count * (2 * p.heads.key_size + p.heads.value_size);
  w.qkv = base;
  w.mixed = w.qkv + b * qkv;
  w.middle = w.mixed + b * p.heads.count * p.heads.splits * p.heads.unit_words();
  w.inner = w.middle + b * p.width;
  w.out = w.inner + b * p.inner / values_in_word<T>();
  return w.out + b * p.width - base;
}

// Shared memory.
template <class T>
struct Shared {
  std::int64_t bytes = 0;
  char* base;

  __host__ __device__ explicit Shared(char* b) : base(b) {}
  template <class U>
  __host__ __device__ U* take(std::int64_t count) {
    U* at = reinterpret_cast<U*>(base + bytes);
    bytes += (count * static_cast<std::int64_t>(sizeof(U)) + 15) / 16 * 16;
    return at;
  }
};

template <class T>
struct Places {
  float* stream;    // (batch, width): the residual stream
  T* vectors;       // (batch, pitch): the input of the product at hand
  float* partials;  // of a product
  float* norms[2];  // gain and bias: of attention (and the last), of feed-forward
  Staging<T> stage;
  KeyPlan* plan;
  LayerEntry* entries;
  HeadGeometry* geometry;
  HeadEntry* heads;
  std::int64_t bytes;

  __host__ __device__ static int most(int a, int b) { return a > b ? a : b; }
  __host__ __device__ Places(const Problem& p, int blocks, char* base) {
    Shared<T> s(base);
    const int mixed = p.heads.count * p.heads.value_size;
    stream = s.template take<float>(p.batch * p.width);
    vectors = s.template take<T>(p.batch * pitch_of<T>(most(most(p.width, p.inner), mixed)));
    int tiles = most(most(p.qkv.tiles, p.output.tiles), most(p.feed_inner.tiles, p.feed_outer.tiles));
    tiles = (most(tiles, p.logits.tiles) + blocks - 1) / blocks;
    partials = s.template take<float>(static_cast<std::int64_t>(tiles) * warps * p.batch * tile_rows);
    for (float*& n : norms) n = s.template take<float>(2 * p.width);
    stage.most = p.keys_at_once;
    stage.keys =
        s.template take<T>(static_cast<std::int64_t>(p.keys_at_once) * Staging<T>::key_pitch(p.heads.key_size));
    stage.values = s.template take<T>(static_cast<std::int64_t>(p.keys_at_once) * p.heads.value_size);
    stage.scores = s.template take<float>(p.keys_at_once);
    stage.query = s.template take<float>(2 * p.heads.key_size + p.heads.value_size);
    stage.partials = s.template take<float>(warps * p.heads.value_size);
    plan = s.template take<KeyPlan>(1);
    entries = s.template take<LayerEntry>(p.layers);
    geometry = s.template take<HeadGeometry>(p.geometries);
    heads = s.template take<HeadEntry>(p.plans * p.heads.count);
    bytes = s.bytes;
  }
};

__device__ __forceinline__ void prefetch_tiles(const Matrix& m) {
  const std::uint32_t bytes = static_cast<std::uint32_t>(m.depth) * 512;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < m.own(); i += 32) {
    const uint4* from =
        m.blocks + (m.first() + static_cast<std::int64_t>(i) * gridDim.x) * static_cast<std::int64_t>(m.depth) * 32;
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#else
    for (std::uint32_t b = 0; b < bytes; b += 128)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(reinterpret_cast<const char*>(from) + b) : "memory");
#endif
  }
}

template <class T>
class Walk {
 public:
  __device__ Walk(const Problem& problem, const Positions& positions, char* shared)
      : p_(problem), at_(positions), s_(problem, static_cast<int>(gridDim.x), shared), heads_(problem.heads) {
    heads_.geometry = s_.geometry;
    heads_.entries = s_.heads;
    units_ = p_.batch * heads_.count * heads_.splits;
    turns_ = (p_.layers + p_.turn - 1) / p_.turn;
    unit_offset_ = static_cast<int>(gridDim.x) / 2;
    first_unit_ = (thread_block() + static_cast<int>(gridDim.x) - unit_offset_) % static_cast<int>(gridDim.x);
    copiers_ = p_.batch <= warps / 2 ? threads / 2 : 0;
    copy_all(s_.entries, p_.entries, p_.layers);
    copy_all(s_.geometry, p_.heads.geometry, p_.geometries);
    copy_all(s_.heads, p_.heads.entries, p_.plans * heads_.count);
    __syncthreads();
  }

  __device__ void run() {
    fetch_ahead(matrix(0, p_.qkv), p_.batch, ahead_);
    fetch_norm(0, p_.attention_norm, s_.norms[0]);
    plan_next(0, at_.first);
    fetched();
    __syncthreads();
    int token = -1;
    if (warp() < p_.batch && at_.first > 0) token = at_.bytes[warp() * at_.length + at_.first - 1];
    for (std::int32_t i = 0; i < at_.count; ++i) token = position(at_.first + i, token);
  }

 private:
  static __device__ int warp() { return static_cast<int>(threadIdx.x) / 32; }
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ int thread_block() { return static_cast<int>(blockIdx.x); }

  template <class U>
  static __device__ void copy_all(U* to, const U* from, int count) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) to[i] = from[i];
  }

  __device__ const char* layer(int k) const { return p_.weights + k * p_.layer_bytes; }
  __device__ Matrix matrix(int k, const Packed& m) const {
    return {reinterpret_cast<const uint4*>(layer(k) + m.blocks),
            m.bias < 0 ? nullptr : reinterpret_cast<const float*>(layer(k) + m.bias), m.tiles, m.depth, m.offset};
  }

  // On its way; there after fetched() and a __syncthreads.
  __device__ void fetch_norm(int k, const Norm& norm, float* to) const {
    for (int i = 4 * static_cast<int>(threadIdx.x); i < 2 * p_.width; i += 4 * threads) {
      const char* from = layer(k) + (i < p_.width ? norm.gain : norm.bias - 4 * p_.width) + 4 * i;
      asm volatile(
          "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to + i))),
          "l"(from)
          : "memory");
    }
  }

  __device__ Cache<T> cache_of(int k, int sequence) const {
    const LayerEntry& e = s_.entries[k];
    return {reinterpret_cast<T*>(p_.cache + e.keys) + sequence * e.rows * heads_.key_size,
            reinterpret_cast<T*>(p_.cache + e.values) + sequence * e.rows * heads_.value_size};
  }

  __device__ void plan_next(int k, std::int32_t position) const {
    if (warp() == warps - 1 && first_unit_ < units_)
      plan_keys(heads_, s_.entries[k].plan, Unit(first_unit_, heads_), position, *s_.plan);
  }

  // The keys of this block's first unit of layer k, as far as they fit.
  __device__ void fetch_first_keys(int k) const {
    if (first_unit_ >= units_) return;
    const Unit unit(first_unit_, heads_);
    const Cache<T> cache = cache_of(k, unit.sequence);
    const int count = min(s_.plan->end - s_.plan->begin, s_.stage.most);
    fetch_keys<T>(heads_, *s_.plan, {cache.keys, cache.values}, s_.plan->begin, count, s_.stage, copiers_);
  }

  // vectors[s] = norm(stream[s]) by the warp of sequence s.
  __device__ void normalise(const float* norm) const {
    const int s = warp(), pitch = pitch_of<T>(p_.width);
    const float* x = s_.stream + s * p_.width;
    float sum[1] = {}, squares[1] = {};
    for (int d = lane(); d < p_.width; d += 32) sum[0] += x[d];
    const float mean = warp_sum(sum[0]) / static_cast<float>(p_.width);
    for (int d = lane(); d < p_.width; d += 32) squares[0] += (x[d] - mean) * (x[d] - mean);
    const float rstd = 1.0f / sqrtf(warp_sum(squares[0]) / static_cast<float>(p_.width) + 1e-5f);
    for (int d = lane(); d < p_.width; d += 32)
      s_.vectors[s * pitch + d] = from_float<T>((x[d] - mean) * rstd * norm[d] + norm[p_.width + d]);
  }

  // The stream that all blocks have written, and its norm.
  __device__ void receive_stream(const Word* words, std::uint32_t tag) const {
    if (warp() >= p_.batch) return;
    float* stream = s_.stream + warp() * p_.width;
    receive<8>(words + warp() * p_.width, p_.width, tag, lane(), 32,
               [&](int d, std::uint32_t x) { stream[d] = __uint_as_float(x); });
    __syncwarp();
  }

  __device__ void embed(std::int32_t position, int token) const {
    if (warp() >= p_.batch) return;
    float* stream = s_.stream + warp() * p_.width;
    const float* rows[EmbeddingArgs::max_tables + 1];
    rows[0] = position == 0 ? p_.start : p_.token + static_cast<std::int64_t>(token) * p_.width;
#pragma unroll
    for (int i = 0; i < EmbeddingArgs::max_tables; ++i)
      rows[i + 1] = i < p_.table_count
                        ? p_.tables[i].rows + position / p_.tables[i].divisor % p_.tables[i].size * p_.width
                        : nullptr;
    for (int d = lane(); d < p_.width; d += 32) {
      float x = rows[0][d];
#pragma unroll
      for (int i = 1; i <= EmbeddingArgs::max_tables; ++i)
        if (rows[i] != nullptr) x += rows[i][d];
      stream[d] = x;
    }
    __syncwarp();
  }

  __device__ Words words(int k) const {
    Words w;
    words_of<T>(p_, p_.words + k % p_.turn * p_.layer_words, w);
    return w;
  }

  // One position: returns this warp's sequence's byte.
  __device__ int position(std::int32_t position, int token) {
    const Barrier barrier{p_.arrived};
    std::uint32_t tag = 0;
    const Word* before = nullptr;
    for (int k = 0; k < p_.layers; ++k) {
      const Words w = words(k);
      // What the former position left in the cache of layer 0 is only sure to be there after the barrier below.
      if (k > 0) fetch_first_keys(k);
      if (k == 0)
        embed(position, token);
      else
        receive_stream(before, tag);
      if (warp() < p_.batch) normalise(s_.norms[0]);
      const unsigned turn =
          static_cast<unsigned>(position) * static_cast<unsigned>(turns_) + static_cast<unsigned>(k / p_.turn) + 1;
      if (k % p_.turn == 0) {
        barrier.arrive();
        tag = turn;
        barrier.wait(turn);
        if (k == 0) fetch_first_keys(k);
      } else {
        __syncthreads();
      }
      fetch_norm(k, p_.feed_forward_norm, s_.norms[1]);
      if (k + 1 < p_.layers) prefetch_layer(k + 1);
      attention(k, position, w, tag);
      feed_forward(k, position, w, tag);
      before = w.out;
    }
    return head(position, before, tag);
  }

  __device__ void prefetch_layer(int k) const {
    if (warp() == warps - 1) prefetch_tiles(matrix(k, p_.qkv));
    if (warp() == warps - 2) prefetch_tiles(matrix(k, p_.output));
    if (warp() == warps - 3) prefetch_tiles(matrix(k, p_.feed_inner));
    if (warp() == warps - 4) prefetch_tiles(matrix(k, p_.feed_outer));
  }

  __device__ void attention(int k, std::int32_t position, const Words& w, std::uint32_t tag) {
    const Matrix qkv = matrix(k, p_.qkv), output = matrix(k, p_.output), inner = matrix(k, p_.feed_inner);
    const int rows = qkv.tiles * tile_rows;
    multiply<T>(qkv, s_.vectors, pitch_of<T>(p_.width), p_.batch, s_.partials, ahead_, output,
                [&](int s, int row, float x) { send(w.qkv + s * rows + row, x, tag); });
    for (int u = first_unit_; u < units_; u += static_cast<int>(gridDim.x)) {
      const Unit unit(u, heads_);
      if (u != first_unit_) {
        __syncthreads();
        if (warp() == warps - 1) plan_keys(heads_, s_.entries[k].plan, unit, position, *s_.plan);
        __syncthreads();
      }
      attend<T>(heads_, *s_.plan, unit, cache_of(k, unit.sequence), s_.stage, u == first_unit_ ? 1 : 0,
                w.qkv + unit.sequence * rows, w.mixed + static_cast<std::int64_t>(u) * heads_.unit_words(), tag);
    }
    const int mixed = heads_.count * heads_.value_size;
    if (output.own() > 0) {
      receive_mixed(w.mixed, tag, pitch_of<T>(mixed));
      __syncthreads();
    }
    multiply<T>(output, s_.vectors, pitch_of<T>(mixed), p_.batch, s_.partials, ahead_, inner,
                [&](int s, int row, float x) {
                  send(w.middle + s * p_.width + row, s_.stream[s * p_.width + row] + rounded(x), tag);
                });
  }

  // As a branch's output is rounded before it joins the stream, everywhere in training.
  static __device__ float rounded(float x) { return to_float(from_float<T>(x)); }

  // The heads' outputs, of all splits, as the vectors of the next product.
  __device__ void receive_mixed(const Word* words, std::uint32_t tag, int pitch) const {
    const int dv = heads_.value_size, mixed = heads_.count * dv, unit = heads_.unit_words();
    if (heads_.splits == 1) {
      for (int i = 2 * static_cast<int>(threadIdx.x); i < p_.batch * mixed; i += 2 * threads)
        receive<1>(words + static_cast<std::int64_t>(i / dv) * unit + i % dv, 2, tag, 0, 1,
                   [&](int e, std::uint32_t x) {
                     s_.vectors[i / mixed * pitch + i % mixed + e] = from_float<T>(__uint_as_float(x));
                   });
      return;
    }
    for (int i = 2 * static_cast<int>(threadIdx.x); i < p_.batch * mixed; i += 2 * threads) {
      const Word* first = words + static_cast<std::int64_t>(i / dv) * heads_.splits * unit;
      float top = -INFINITY, total = 0, sum[2] = {};
      for (int split = 0; split < heads_.splits; ++split) {
        const Word* from = first + static_cast<std::int64_t>(split) * unit;
        float x[2], of_split[2];
        receive<1>(from + i % dv, 2, tag, 0, 1, [&](int e, std::uint32_t v) { x[e] = __uint_as_float(v); });
        receive<1>(from + dv, 2, tag, 0, 1, [&](int e, std::uint32_t v) { of_split[e] = __uint_as_float(v); });
        if (of_split[1] <= 0) continue;
        const float most = fmaxf(top, of_split[0]), old = expf(top - most), now = expf(of_split[0] - most);
        top = most;
        total = total * old + of_split[1] * now;
        for (int e = 0; e < 2; ++e) sum[e] = sum[e] * old + x[e] * now;
      }
      for (int e = 0; e < 2; ++e)
        s_.vectors[i / mixed * pitch + i % mixed + e] = from_float<T>(total > 0 ? sum[e] / total : 0.0f);
    }
  }

  __device__ void feed_forward(int k, std::int32_t position, const Words& w, std::uint32_t tag) {
    const Matrix inner = matrix(k, p_.feed_inner), outer = matrix(k, p_.feed_outer);
    const bool last = k + 1 == p_.layers;
    fetched();
    __syncthreads();  // the norm's gain and bias are there
    receive_stream(w.middle, tag);
    if (warp() < p_.batch) normalise(s_.norms[1]);
    plan_next(last ? 0 : k + 1, last ? position + 1 : position);
    __syncthreads();
    fetch_norm(k + 1, last ? p_.final_norm : p_.attention_norm, s_.norms[0]);
    multiply<T>(inner, s_.vectors, pitch_of<T>(p_.width), p_.batch, s_.partials, ahead_, outer,
                [&](int s, int row, float x) { send_inner(w.inner, s, row, gelu(x), tag); });
    fetched();
    if (outer.own() > 0) receive_inner(w.inner, tag);
    __syncthreads();
    multiply<T>(outer, s_.vectors, pitch_of<T>(p_.inner), p_.batch, s_.partials, ahead_,
                last ? matrix(p_.layers, p_.logits) : matrix(k + 1, p_.qkv), [&](int s, int row, float x) {
                  send(w.out + s * p_.width + row, s_.stream[s * p_.width + row] + rounded(x), tag);
                });
  }

  static __device__ float gelu(float x) {
    const float z = rounded(x);
    return z / (1.0f + expf(-1.702f * z));
  }

  // Neighbouring rows are neighbouring threads: two share a word of a 16-bit type.
  __device__ void send_inner(Word* words, int s, int row, float x, std::uint32_t tag) const {
    if constexpr (sizeof(T) == 4) {
      send(words + static_cast<std::int64_t>(s) * p_.inner + row, x, tag);
    } else {
      const int lane = static_cast<int>(threadIdx.x) % 32;
      const float other = __shfl_down_sync(0xFFu << lane / tile_rows * tile_rows, x, 1, tile_rows);
      Pack<T, 2> pair{{from_float<T>(x), from_float<T>(other)}};
      if (row % 2 == 0)
        send(words + (static_cast<std::int64_t>(s) * p_.inner + row) / 2, *reinterpret_cast<std::uint32_t*>(&pair),
             tag);
    }
  }
  __device__ void receive_inner(const Word* words, std::uint32_t tag) const {
    const int each = p_.inner / values_in_word<T>(), pitch = pitch_of<T>(p_.inner);
    receive<4>(words, p_.batch * each, tag, static_cast<int>(threadIdx.x), threads, [&](int i, std::uint32_t x) {
      std::uint32_t* to = reinterpret_cast<std::uint32_t*>(s_.vectors + i / each * pitch);
      to[i % each] = x;
    });
  }

  // The last norm, the logits, and the draw, which every block does for itself.
  __device__ int head(std::int32_t position, const Word* before, std::uint32_t tag) {
    const Matrix logits = matrix(p_.layers, p_.logits);
    Word* words = p_.words + p_.turn * p_.layer_words;
    receive_stream(before, tag);
    if (warp() < p_.batch) normalise(s_.norms[0]);
    __syncthreads();
    fetch_norm(0, p_.attention_norm, s_.norms[0]);
    prefetch_layer(0);
    multiply<T>(logits, s_.vectors, pitch_of<T>(p_.width), p_.batch, s_.partials, ahead_, matrix(0, p_.qkv),
                [&](int s, int row, float x) { send(words + s * p_.vocabulary + row, x, tag); });
    fetched();
    int byte = -1;
    if (warp() < p_.batch) byte = draw(position, words + warp() * p_.vocabulary, tag);
    __syncthreads();  // the norm is there
    return byte;
  }

  __device__ int draw(std::int32_t position, const Word* words, std::uint32_t tag) const {
    const int s = warp();
    const std::int64_t place = s * at_.length + position;
    const int given = position < at_.prompted ? at_.bytes[place] : -1;
    float x[Draw::each];
#pragma unroll
    for (int e = 0; e < Draw::each; ++e) x[e] = -INFINITY;
#pragma unroll
    for (int e = 0; e < Draw::each; e += 2) {
      const int v = lane() * Draw::each + e;
      if (v < p_.vocabulary)
        receive<1>(words + v, 2, tag, 0, 1, [&](int j, std::uint32_t w) {
          if (j == 0)
            x[e] = __uint_as_float(w);
          else
            x[e + 1] = __uint_as_float(w);
        });
    }
    __syncwarp();
    const bool log = at_.log_probabilities != nullptr && blockIdx.x == 0;
    const Draw drawn =
        draw_by_warp(x, at_.sampling, uniform_for(at_.sampling, at_.first_sequence + s, position), given, log);
    if (blockIdx.x == 0 && lane() == 0) {
      at_.bytes[place] = static_cast<std::uint8_t>(drawn.byte);
      if (log) at_.log_probabilities[place] = drawn.log_probability;
    }
    return drawn.byte;
  }

  const Problem& p_;
  const Positions& at_;
  Places<T> s_;
  Heads heads_;
  Ahead ahead_;
  int units_, turns_, unit_offset_, first_unit_, copiers_;
};

template <class T>
__global__ void __launch_bounds__(threads, 1)
    generate_kernel(const __grid_constant__ Problem problem, const __grid_constant__ Positions positions) {
  extern __shared__ __align__(16) char shared[];
  Walk<T>(problem, positions, shared).run();
}

}  // namespace longstride::kernels::cuda::generation
