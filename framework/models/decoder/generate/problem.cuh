// The arguments of the generating kernels, and the layout of the grid kernel's shared memory.
#pragma once
#include <algorithm>

#include "framework/models/decoder/generate/attend.cuh"
#include "framework/models/decoder/generate/exchange.cuh"
#include "framework/models/decoder/generate/product.cuh"
#include "kernels/draw/draw.cuh"
#include "kernels/embedding/embedding.h"

namespace longstride::generation {

struct LayerEntry {
  std::int64_t keys, values;  // byte offsets of the layer's cache from `GenerationProblem::cache`
  std::int64_t rows;          // per sequence
  std::int32_t plan;
};

constexpr int matrices = 5;  // four per layer, and that of the logits

// A matrix and its bias in the packed weights, in bytes from the beginning of its layer.
struct PackedMatrix {
  std::int64_t blocks, bias;
  std::int32_t tiles, depth, offset;
};
struct Norm {
  std::int64_t gain, bias;
};

struct PositionTable {
  std::int64_t divisor, size;
  const float* rows;
};

// Byte offsets in shared memory, computed by the host so that the kernel need not derive them.
struct Offsets {
  int stream, vectors, partials, norms[2], keys, values, scores, query, of_warps, list, shares, key_plans, lists,
      entries, geometry, heads, rotation, bytes;
};

struct GenerationProblem {
  int layers, width, inner, vocabulary, batch, turn;  // turn: number of layers with words of their own
  std::int64_t layer_bytes, head_bytes, vectors;      // vectors: offset of a layer's biases and norms
  const char* weights;                                // layer_bytes per layer, then the head
  PackedMatrix qkv, output, feed_inner, feed_outer, logits;
  Norm attention_norm, feed_forward_norm, final_norm;
  const float* start;
  const float* token;
  PositionTable tables[EmbeddingArgs::max_tables];
  int table_count;
  GenerationHeads heads;
  PairTurns turns;
  int plans, geometries;
  int rounds;  // units (sequence, head, split) per block
  char* cache;
  const LayerEntry* entries;
  Word* words;
  std::int64_t layer_words;
  unsigned* arrived;
  int keys_at_once;
  Offsets at;
};

struct PositionSpan {
  std::uint8_t* bytes;
  float* log_probabilities;
  std::int64_t length, prompted, first_sequence;
  std::int32_t first, count;
  Sampling sampling;
};

// The words of a layer's hand-overs.
struct Words {
  Word *qkv, *mixed, *middle, *inner, *out;
};

template <class T>
__host__ __device__ constexpr int values_in_word() {
  return sizeof(T) == 2 ? 2 : 1;
}

template <class T>
__host__ __device__ inline std::int64_t words_of(const GenerationProblem& p, Word* base, Words& w) {
  const std::int64_t b = p.batch, qkv = p.heads.count * (2 * p.heads.key_size + p.heads.value_size);
  w.qkv = base;
  w.mixed = w.qkv + b * qkv;
  w.middle = w.mixed + b * p.heads.count * p.heads.splits * p.heads.unit_words();
  w.inner = w.middle + b * p.width;
  w.out = w.inner + b * p.inner / values_in_word<T>();
  return w.out + b * p.width - base;
}

template <class T>
inline Offsets offsets_of(const GenerationProblem& p, int blocks) {
  Offsets at{};
  const auto take = [&](std::int64_t bytes) {
    const int begin = at.bytes;
    at.bytes += static_cast<int>((bytes + 15) / 16 * 16);
    return begin;
  };
  constexpr std::int64_t size = sizeof(T), word = 4;
  const std::int64_t mixed = std::int64_t{p.heads.count} * p.heads.value_size, plans = std::int64_t{p.rounds} * p.plans;
  const std::int64_t widest = std::max<std::int64_t>({p.width, p.inner, mixed});
  const int tiles = std::max({p.qkv.tiles, p.output.tiles, p.feed_inner.tiles, p.feed_outer.tiles, p.logits.tiles});
  at.stream = take(word * p.batch * p.width);
  at.vectors = take(size * p.batch * pitch_of<T>(static_cast<int>(widest)));
  at.partials = take(word * ((tiles + blocks - 1) / blocks) * warps * p.batch * tile_rows);
  for (int& norm : at.norms) norm = take(word * 2 * p.width);
  at.keys = take(size * p.keys_at_once * SharedStaging<T>::key_pitch(p.heads.key_size));
  at.values = take(size * p.keys_at_once * p.heads.value_size);
  at.scores = take(word * p.keys_at_once);
  at.query = take(word * (2 * p.heads.key_size + p.heads.value_size));
  at.of_warps = take(word * warps * p.heads.value_size);
  at.list = take(word * p.keys_at_once);
  at.shares = take(static_cast<std::int64_t>(sizeof(MatrixShare)) * matrices);
  at.key_plans = take(static_cast<std::int64_t>(sizeof(KeyPlan)) * plans);
  at.lists = take(word * plans * p.keys_at_once);
  at.entries = take(static_cast<std::int64_t>(sizeof(LayerEntry)) * p.layers);
  at.geometry = take(static_cast<std::int64_t>(sizeof(HeadGeometry)) * p.geometries);
  at.heads = take(static_cast<std::int64_t>(sizeof(HeadEntry)) * p.plans * p.heads.count);
  at.rotation = take(p.heads.transformed ? static_cast<std::int64_t>(sizeof(float2)) * p.heads.key_size / 2 : 0);
  return at;
}

template <class T>
struct SharedLayout {
  float* stream;    // (batch, width): the residual stream
  T* vectors;       // (batch, pitch): the input of the product at hand
  float* partials;  // partial sums of a product
  float* norms[2];  // gain and bias: of attention (and the last), of feed-forward
  SharedStaging<T> stage;
  MatrixShare* shares;  // shares of the five matrices
  KeyPlan* key_plans;   // (rounds, plans)
  int* lists;           // (rounds, plans, keys at once): rows of the cache
  LayerEntry* entries;
  HeadGeometry* geometry;
  HeadEntry* heads;
  float2* rotation;  // (key size / 2): cosine and sine at this position

  __device__ __forceinline__ SharedLayout(const GenerationProblem& p, char* base)
      : stream(reinterpret_cast<float*>(base + p.at.stream)),
        vectors(reinterpret_cast<T*>(base + p.at.vectors)),
        partials(reinterpret_cast<float*>(base + p.at.partials)),
        norms{reinterpret_cast<float*>(base + p.at.norms[0]), reinterpret_cast<float*>(base + p.at.norms[1])},
        stage{reinterpret_cast<T*>(base + p.at.keys),
              reinterpret_cast<T*>(base + p.at.values),
              reinterpret_cast<float*>(base + p.at.scores),
              reinterpret_cast<float*>(base + p.at.query),
              reinterpret_cast<float*>(base + p.at.of_warps),
              reinterpret_cast<int*>(base + p.at.list),
              p.keys_at_once},
        shares(reinterpret_cast<MatrixShare*>(base + p.at.shares)),
        key_plans(reinterpret_cast<KeyPlan*>(base + p.at.key_plans)),
        lists(reinterpret_cast<int*>(base + p.at.lists)),
        entries(reinterpret_cast<LayerEntry*>(base + p.at.entries)),
        geometry(reinterpret_cast<HeadGeometry*>(base + p.at.geometry)),
        heads(reinterpret_cast<HeadEntry*>(base + p.at.heads)),
        rotation(reinterpret_cast<float2*>(base + p.at.rotation)) {}
};

// A position's rows of the embedding: the token's row, or the start vector at position 0, and one row of every position
// table; null where there is no table. row_of(table) gives the index of the table's row.
struct EmbeddingRows {
  const float* row[1 + EmbeddingArgs::max_tables];

  template <class F>
  __device__ __forceinline__ EmbeddingRows(const GenerationProblem& p, std::int32_t position, int token, F&& row_of) {
    row[0] = position == 0 ? p.start : p.token + static_cast<std::int64_t>(token) * p.width;
#pragma unroll
    for (int i = 0; i < EmbeddingArgs::max_tables; ++i)
      row[i + 1] = i < p.table_count ? p.tables[i].rows + row_of(p.tables[i]) * p.width : nullptr;
  }
  __device__ __forceinline__ float sum(int d) const {
    float x = row[0][d];
#pragma unroll
    for (int i = 1; i <= EmbeddingArgs::max_tables; ++i)
      if (row[i] != nullptr) x += row[i][d];
    return x;
  }
};

// The launch, compiled in one file per type because the kernel takes long to compile.
template <class T>
void launch_generate(const GenerationProblem&, const PositionSpan&, int blocks, std::size_t shared_bytes,
                     const Launch&);

}  // namespace longstride::generation
