// Generation with a decoder: position by position through the layers, or entirely in one kernel.
#include <algorithm>

#include "framework/core/errors.h"
#include "framework/mixers/attention/mixer.h"
#include "framework/models/decoder/decoder.h"
#include "framework/models/decoder/generate/generate.h"
#include "framework/ops/run.h"
#include "kernels/elementwise/elementwise.h"

namespace longstride {
namespace {

class DecoderState : public DecodingState {
 public:
  explicit DecoderState(Context& ctx) : scratch(ctx) {}
  std::int64_t bytes() const override { return cache_bytes; }

  Scratch scratch;  // holds the caches, and the generator's memory
  Stack::Caches caches;
  Tensor place;  // (1) i64: of the position in its segment, where a stream continues beyond one
  std::int64_t cache_bytes = 0;
  bool one_kernel = false;
  std::shared_ptr<const generation::Generator> generator;
};

const AttentionCache& attention_cache(const Stack::Caches& caches, std::int64_t layer) {
  return static_cast<const AttentionCache&>(*caches.mixer(layer));
}

// The one mixer that the kernels know, without a sink or shared keys; null: another.
const AttentionMixer* as_attention(const Mixer& mixer) {
  const auto* attention = dynamic_cast<const AttentionMixer*>(&mixer);
  return attention != nullptr && !attention->has_sink() && !attention->shares_keys() ? attention : nullptr;
}

generation::ModelShape shape_of(const DecoderConfig& config, const DecoderState& state, std::int64_t batch,
                                Dtype dtype) {
  generation::ModelShape shape;
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
  for (std::int64_t layer = 0; layer < state.caches.layers(); ++layer)
    shape.plans.push_back(attention_cache(state.caches, layer).plan);
  return shape;
}

}  // namespace

generation::Weights Decoder::generation_weights(const Stack::Caches& caches) const {
  const auto value = [](const Parameter& p) { return p.value; };
  const auto master = [](const Parameter& p) { return p.master; };
  generation::Weights w;
  w.embedding = input().embedding().tables();
  w.final_gain = master(stack().final_norm()->gain());
  w.final_bias = master(stack().final_norm()->bias());
  w.output = value(head_->weight());
  for (std::int64_t k = 0; k < layers(); ++k) {
    const Stack::Block& block = stack().blocks()[static_cast<std::size_t>(k)];
    const AttentionMixer& attention = *as_attention(mixer(k));
    const Linear &qkv = attention.query_key_value(), &output = attention.output();
    const Linear &inner = block.feed_forward->inner(), &outer = block.feed_forward->outer();
    const kernels::DecodeCache& cache = attention_cache(caches, k).rows;
    generation::LayerWeights layer;
    layer.qkv = value(qkv.weight());
    layer.qkv_bias = qkv.bias();
    layer.output = value(output.weight());
    layer.output_bias = output.bias();
    layer.inner = value(inner.weight());
    layer.inner_bias = inner.bias();
    layer.outer = value(outer.weight());
    layer.outer_bias = outer.bias();
    layer.attention_gain = master(block.attention_norm->gain());
    layer.attention_bias = master(block.attention_norm->bias());
    layer.feed_forward_gain = master(block.feed_forward_norm->gain());
    layer.feed_forward_bias = master(block.feed_forward_norm->bias());
    layer.keys = cache.keys;
    layer.values = cache.values;
    w.layers.push_back(layer);
  }
  return w;
}

std::unique_ptr<DecodingState> Decoder::begin_decoding(Context& ctx, std::int64_t batch, std::int64_t positions) const {
  auto state = std::make_unique<DecoderState>(ctx);
  const std::size_t before = ctx.arena->scratch_used();
  state->caches = stack().make_caches(ctx, state->scratch, batch, positions);
  if (positions > config_.context) state->place = state->scratch.tensor({1}, Dtype::i64);
  state->cache_bytes = static_cast<std::int64_t>(ctx.arena->scratch_used() - before);
  bool known = true;
  for (std::int64_t layer = 0; layer < layers(); ++layer) known = known && as_attention(mixer(layer)) != nullptr;
  if (ctx.device == Device::cpu || !known || !config_.has_default_form()) return state;
  const generation::ModelShape shape = shape_of(config_, *state, batch, ctx.compute);
  state->one_kernel = generation::supports(shape);
  if (!state->one_kernel) return state;
  const auto bytes = static_cast<std::int64_t>(generation::generator_bytes(shape));
  const Tensor memory = state->scratch.tensor({bytes}, Dtype::u8);
  if (!ctx.planning())
    state->generator = generation::make_generator(shape, generation_weights(state->caches), memory.data(), ctx.launch);
  return state;
}

void Decoder::begin_position(Context& ctx, DecodingState& state, std::int64_t position) const {
  Context quiet = ctx;
  quiet.step = nullptr;
  const Stack::Caches& caches = static_cast<DecoderState&>(state).caches;
  for (std::int64_t layer = 0; layer < layers(); ++layer)
    mixer(layer).begin_position(quiet, caches.mixer(layer), position);
}

// To the end of a segment at most: each begins with what its mixers keep of those before.
std::int64_t Decoder::positions_together(std::int64_t position) const {
  constexpr std::int64_t most = 256;
  if (position == 0) return 1;  // the start vector's
  for (std::int64_t layer = 0; layer < layers(); ++layer)
    if (!mixer(layer).decodes_several()) return 1;
  return std::min(most, config_.context - position % config_.context);
}

void Decoder::decode(Context& ctx, DecodingState& state, std::int64_t position, const Tensor& previous,
                     const Tensor& logits) const {
  if (ctx.position == nullptr) begin_position(ctx, state, position);
  Context quiet = ctx;
  quiet.step = nullptr;
  auto& own = static_cast<DecoderState&>(state);
  if (ctx.position != nullptr && own.place.given()) {
    ops::run(quiet, kernels::RemainderArgs{
                        .x = Tensor(ctx.position, Dtype::i64, {1}), .y = own.place, .divisor = config_.context});
    quiet.segment_position = own.place.as<std::int64_t>();
  }
  Scratch scratch(quiet);
  const Tensor h = scratch.tensor({previous.size(0), previous.size(1), config_.width}, ctx.residual_dtype());
  input().embedding().decode(quiet, previous, h, position);
  const Tensor normed = scratch.tensor(h.shape(), ctx.compute);
  stack().decode(quiet, h, normed, own.caches, position);
  head_->logits(quiet, normed, logits);
}

bool Decoder::generates(const DecodingState& state) const { return static_cast<const DecoderState&>(state).one_kernel; }

void Decoder::generate(Context& ctx, DecodingState& state, const kernels::Drawing& drawing, std::int64_t first,
                       std::int64_t count) const {
  const auto& own = static_cast<const DecoderState&>(state);
  LONGSTRIDE_CHECK(own.one_kernel && first >= 0 && first + count <= drawing.bytes.size(1), "positions {} to {} of {}",
                   first, first + count, drawing.bytes.shape().text());
  if (ctx.planning()) return;
  generation::Args args;
  args.generator = own.generator.get();
  args.bytes = drawing.bytes;
  args.log_probabilities = drawing.log_probabilities;
  args.prompted = drawing.prompted;
  args.sampling = drawing.sampling;
  args.first_sequence = drawing.first_sequence;
  args.first = first;
  args.count = count;
  generation::generate(args, ctx.launch);
}

}  // namespace longstride
