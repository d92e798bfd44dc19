// Generation by one persistent kernel: every position's embedding, layers, logits and draw, for up to 16 sequences and
// any number of positions in one launch, with the weights read once per position (README.md).
//
// Weights are copied once into the order in which the kernel reads them; the cache is that of
// kernels/attention/decode/decode.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/attention/decode/decode.h"
#include "kernels/draw/draw.h"
#include "kernels/embedding/embedding.h"
#include "kernels/query_key/query_key.h"

namespace longstride::generation {

using namespace kernels;

struct ModelShape {
  std::int64_t layers = 0, width = 0, heads = 0, key_size = 0, value_size = 0, inner = 0, vocabulary = 0;
  std::int64_t batch = 0;
  Dtype dtype = Dtype::f32;     // weights, cache and the inputs of products; sums and the residual stream are f32
  QueryKeyTransform transform;  // transform of queries and keys; the cache holds transformed keys
  std::vector<std::shared_ptr<const DecodePlan>> plans;  // one per layer
};

// Weights as the model holds them: matrices (out, in) and biases of shape.dtype, norms f32.
struct LayerWeights {
  Tensor qkv, qkv_bias, output, output_bias, inner, inner_bias, outer, outer_bias;
  Tensor attention_gain, attention_bias, feed_forward_gain, feed_forward_bias;
  Tensor keys, values;  // cache: (batch, rows, size)
};
struct Weights {
  EmbeddingArgs embedding;  // tables only
  std::vector<LayerWeights> layers;
  Tensor final_gain, final_bias, output;
};

// Everything decided before the first position.
class Generator;

struct Args {
  const Generator* generator = nullptr;
  Tensor bytes;              // (batch, length) u8, as in DrawArgs
  Tensor log_probabilities;  // (batch, length) f32; may be absent
  std::int64_t prompted = 0;
  Sampling sampling;
  std::int64_t first_sequence = 0;    // index of the batch's first sequence among all drawn with this seed
  std::int64_t first = 0, count = 0;  // positions; from 0 on, in order, each once
};

// True if the kernel supports this model on this GPU. False without a GPU.
bool supports(const ModelShape&);
// Bytes of device memory for the packed weights and for what blocks exchange.
std::size_t generator_bytes(const ModelShape&);
// Packs the weights into `memory` of generator_bytes.
std::shared_ptr<const Generator> make_generator(const ModelShape&, const Weights&, void* memory, const Launch&);
void generate(const Args&, const Launch&);
}  // namespace longstride::generation
