// What the kernel of a whole position is given, and where it keeps things in shared memory.
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

constexpr int matrices = 5;  // four in a layer, and the one of the logits

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
  std::int64_t layer_bytes, head_bytes, vectors;      // vectors: where a layer's biases and norms begin
  const char* weights;                                // layer_bytes a layer, then the head
  Packed qkv, output, feed_inner, feed_outer, logits;
  Norm attention_norm, feed_forward_norm, final_norm;
  const float* start;
  const float* token;
  Table tables[EmbeddingArgs::max_tables];
  int table_count;
  Heads heads;
  int plans, geometries;
  int rounds;  // units (sequence, head, split) of one block
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
  Share* shares;       // of the five matrices
  KeyPlan* key_plans;  // (rounds, plans)
  int* lists;          // (rounds, plans, keys at once): rows of the cache
  LayerEntry* entries;
  HeadGeometry* geometry;
  HeadEntry* heads;
  std::int64_t bytes;

  __host__ __device__ static int most(int a, int b) { return a > b ? a : b; }
  __host__ __device__ Places(const Problem& p, int blocks, char* base) {
    Shared<T> s(base);
    const int mixed = p.heads.count * p.heads.value_size, plans = p.rounds * p.plans;
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
    stage.list = s.template take<int>(p.keys_at_once);
    shares = s.template take<Share>(matrices);
    key_plans = s.template take<KeyPlan>(plans);
    lists = s.template take<int>(static_cast<std::int64_t>(plans) * p.keys_at_once);
    entries = s.template take<LayerEntry>(p.layers);
    geometry = s.template take<HeadGeometry>(p.geometries);
    heads = s.template take<HeadEntry>(p.plans * p.heads.count);
    bytes = s.bytes;
  }
};

// The launch: a file for each type, as the kernel takes long to compile.
template <class T>
void launch_generate(const Problem&, const Positions&, int blocks, std::size_t shared_bytes, const Launch&);

}  // namespace longstride::kernels::cuda::generation
