// Generation with a Sparse Transformer: a position at a time through the layers, or all of it in one kernel.
#include <map>

#include "framework/core/errors.h"
#include "framework/models/sparse_transformer/generate/generate.h"
#include "framework/models/sparse_transformer/sparse_transformer.h"
#include "framework/ops/linear.h"

namespace longstride {
namespace {

class SparseTransformerState : public DecodingState {
 public:
  explicit SparseTransformerState(Context& ctx) : scratch(ctx) {}
  std::int64_t bytes() const override { return cache_bytes; }

  Scratch scratch;  // holds the caches, and the generator's memory
  ResidualStream::Caches caches;
  std::int64_t cache_bytes = 0;
  bool one_kernel = false;
  std::shared_ptr<const kernels::Generator> generator;
};

// A block is an attention branch and a feed-forward branch.
const AttentionCache& attention_cache(const ResidualStream::Caches& caches, std::int64_t layer) {
  return static_cast<const AttentionCache&>(*caches[static_cast<std::size_t>(2 * layer)]);
}

kernels::GenerateShape shape_of(const SparseTransformerConfig& config, const SparseTransformerState& state,
                                std::int64_t batch, Dtype dtype) {
  kernels::GenerateShape shape;
  shape.layers = config.layers;
  shape.width = config.width;
  shape.heads = config.heads;
  shape.key_size = config.key_size();
  shape.value_size = config.value_size();
  shape.inner = config.inner_width();
  shape.vocabulary = config.vocabulary;
  shape.batch = batch;
  shape.dtype = dtype;
  shape.transform = {config.query_key_norm, config.rotary_base};
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    shape.plans.push_back(attention_cache(state.caches, layer).plan);
  return shape;
}

kernels::GenerateWeights weights_of(const ParameterSet& parameters, const kernels::EmbeddingArgs& embedding,
                                    const ResidualStream::Caches& caches, std::int64_t layers) {
  std::map<std::string, const Parameter*> named;
  for (const Parameter& p : parameters.all()) named[p.name] = &p;
  const auto value = [&](const std::string& name) { return named.at(name)->value.view(); };
  const auto master = [&](const std::string& name) { return named.at(name)->master.view(); };
  kernels::GenerateWeights w;
  w.embedding = embedding;
  w.final_gain = master("final_norm.weight");
  w.final_bias = master("final_norm.bias");
  w.output = value("output.weight");
  for (std::int64_t k = 0; k < layers; ++k) {
    const ops::DecodeCache& cache = attention_cache(caches, k).rows;
    const std::string name = "layers." + std::to_string(k);
    const std::string attention = name + ".attention", feed_forward = name + ".feed_forward";
    kernels::GenerateLayer layer;
    layer.qkv = value(attention + ".query_key_value.weight");
    layer.qkv_bias = value(attention + ".query_key_value.bias");
    layer.output = value(attention + ".output.weight");
    layer.output_bias = value(attention + ".output.bias");
    layer.inner = value(feed_forward + ".inner.weight");
    layer.inner_bias = value(feed_forward + ".inner.bias");
    layer.outer = value(feed_forward + ".outer.weight");
    layer.outer_bias = value(feed_forward + ".outer.bias");
    layer.attention_gain = master(attention + "_norm.weight");
    layer.attention_bias = master(attention + "_norm.bias");
    layer.feed_forward_gain = master(feed_forward + "_norm.weight");
    layer.feed_forward_bias = master(feed_forward + "_norm.bias");
    layer.keys = cache.keys.view();
    layer.values = cache.values.view();
    w.layers.push_back(layer);
  }
  return w;
}

}  // namespace

std::unique_ptr<DecodingState> SparseTransformer::begin_decoding(Context& ctx, std::int64_t batch,
                                                                 std::int64_t positions) const {
  auto state = std::make_unique<SparseTransformerState>(ctx);
  const std::size_t before = ctx.arena->scratch_used();
  state->caches = stream_->make_caches(ctx, state->scratch, batch, positions);
  state->cache_bytes = static_cast<std::int64_t>(ctx.arena->scratch_used() - before);
  if (ctx.device == Device::cpu) return state;
  const kernels::GenerateShape shape = shape_of(config_, *state, batch, ctx.compute);
  state->one_kernel = kernels::cuda::generates(shape);
  if (!state->one_kernel) return state;
  const auto bytes = static_cast<std::int64_t>(kernels::cuda::generator_bytes(shape));
  const Tensor memory = state->scratch.tensor({bytes}, Dtype::u8);
  if (!ctx.planning())
    state->generator = kernels::cuda::make_generator(
        shape, weights_of(parameters_, embedding_->tables(), state->caches, config_.layers), memory.data(), ctx.launch);
  return state;
}

void SparseTransformer::decode(Context& ctx, DecodingState& state, std::int64_t position, const Tensor& previous,
                               const Tensor& logits) const {
  const auto& caches = static_cast<SparseTransformerState&>(state).caches;
  Context quiet = ctx;
  quiet.step = nullptr;
  Scratch scratch(quiet);
  const Tensor h = scratch.tensor({previous.size(0), 1, config_.width}, ctx.stream());
  embedding_->decode(quiet, previous, h, position);
  const Tensor normed = scratch.tensor(h.shape(), ctx.compute);
  stream_->decode(quiet, h, normed, caches, position);
  ops::linear(quiet, normed.rows(), output_->value, Tensor{}, logits);
}

bool SparseTransformer::generates(const DecodingState& state) const {
  return static_cast<const SparseTransformerState&>(state).one_kernel;
}

void SparseTransformer::generate(Context& ctx, DecodingState& state, const ops::Drawing& drawing, std::int64_t first,
                                 std::int64_t count) const {
  const auto& own = static_cast<const SparseTransformerState&>(state);
  LONGSTRIDE_CHECK(own.one_kernel && first >= 0 && first + count <= drawing.bytes.size(1), "positions {} to {} of {}",
                   first, first + count, drawing.bytes.shape().text());
  if (ctx.planning()) return;
  kernels::GenerateArgs args;
  args.generator = own.generator.get();
  args.bytes = drawing.bytes.view();
  args.log_probabilities = drawing.log_probabilities.view();
  args.prompted = drawing.prompted;
  args.sampling = drawing.sampling;
  args.first_sequence = drawing.first_sequence;
  args.first = first;
  args.count = count;
  kernels::cuda::generate(args, ctx.launch);
}

}  // namespace longstride
