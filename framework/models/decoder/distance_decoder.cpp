#include "framework/models/decoder/distance_decoder.h"

#include <algorithm>

#include "framework/core/errors.h"

namespace longstride {

DistanceDecoder::DistanceDecoder(const DecoderConfig& config)
    : config_(config),
      shared_(declare_shared_distance(parameters_, shape(), config.distance)),
      remembered_(std::make_shared<RememberedPositions>(states_, config.memory)),
      windows_(std::make_shared<Windows>(Windows{config.distance.window})),
      trunk_(config, parameters_,
             [this](std::int64_t layer, const std::string& name) { return make_attention(layer, name); }) {}

void DistanceDecoder::set_windows(const std::vector<std::int64_t>& of_layers) {
  windows_->of_layers = of_layers.empty() ? config_.distance.window : of_layers;
}

DistanceShape DistanceDecoder::shape() const {
  return {config_.width, config_.heads, config_.key_size(), config_.deviation(static_cast<double>(config_.width))};
}

std::shared_ptr<const DistanceMixer> DistanceDecoder::make_attention(std::int64_t layer, const std::string& name) {
  DistanceMixerConfig attention;
  attention.shape = shape();
  attention.value_size = config_.value_size();
  attention.output_deviation = config_.shrink() * attention.shape.deviation;
  attention.compress_deviation =
      config_.deviation(static_cast<double>(std::max<std::int64_t>(1, config_.memory.rate) * config_.width));
  attention.biased = config_.attention_bias;
  attention.transform = {config_.query_key_norm, config_.rotary_base};
  attention.distance = config_.distance;
  attention.memory = config_.memory;
  attention.layer = layer;
  attention.reconstruction_loss = has_span_loss() ? 1 : 0;
  attention.segment = config_.context;
  attention_.push_back(
      std::make_shared<DistanceMixer>(parameters_, states_, name, attention, shared_, remembered_, windows_));
  return attention_.back();
}

void DistanceDecoder::losses(Context& ctx, const Batch& batch, const Tensor& losses) const {
  trunk_.losses(ctx, batch, losses);
  remembered_->add(ctx, batch.tokens.size(1));
}

std::vector<std::string> DistanceDecoder::auxiliary_losses() const {
  std::vector<std::string> names;
  if (has_span_loss()) names.emplace_back("span");
  if (config_.memory.learns_to_compress() && config_.memory.reconstruction > 0) names.emplace_back("reconstruction");
  return names;
}

void DistanceDecoder::loss_and_gradients(Context& ctx, const Batch& batch, double scale, const Tensor& losses) const {
  if (has_span_loss() && ctx.auxiliary.sums.given() && ctx.auxiliary.once)
    for (const auto& branch : attention_)
      branch->add_span_loss(ctx, config_.distance.span.loss, ctx.auxiliary.sums.slice(0, 0, 1));
  trunk_.loss_and_gradients(ctx, batch, scale, losses);
  remembered_->add(ctx, batch.tokens.size(1));
}

std::int64_t DistanceDecoder::remembered_positions() const {
  return config_.memory.length + config_.memory.rate * config_.memory.compressed;
}

std::int64_t DistanceDecoder::warm_up_steps() const {
  return (remembered_positions() + config_.context - 1) / config_.context;
}

// A segment sees the positions that a layer remembers before its first one, and what a layer above remembers was made
// by whole segments. The first position of all reads the byte before it. Which rows are the most used depends on all
// that were compressed before them.
std::int64_t DistanceDecoder::reach_of_memory() const {
  if (config_.memory.compressed > 0 && config_.memory.compress == Compression::most_used)
    return Model::reach_of_memory();
  const std::int64_t positions = remembered_positions(), segments = (positions + config_.context - 1) / config_.context;
  return (config_.layers - 1) * segments * config_.context + positions + 1;
}

double DistanceDecoder::compressor_parameters() const {
  return static_cast<double>(config_.layers * config_.width * config_.width * config_.memory.rate);
}

// The compression's weight is applied twice, for the memory and for the loss, and has a gradient, for each of the rows
// that `positions` positions become. The loss projects these rows, and takes attention to old and new rows and the
// gradients of new keys and values.
double DistanceDecoder::learning_flops(double positions) const {
  const double rows = positions / static_cast<double>(config_.memory.rate),
               layers = static_cast<double>(config_.layers),
               keys = static_cast<double>(config_.heads * config_.key_size()),
               values = static_cast<double>(config_.heads * config_.value_size());
  return 6.0 * compressor_parameters() * rows +
         layers * (4.0 * static_cast<double>(config_.width) * (keys + values) * rows +
                   2.0 * positions * ((keys + values) * positions + (2.0 * keys + 3.0 * values) * rows));
}

SpanParameters DistanceDecoder::spans() const {
  const LearnedSpans& c = config_.distance.span;
  const double longest = static_cast<double>(c.longest);
  SpanParameters out{longest, static_cast<double>(c.ramp), c.initial * longest, {}};
  for (const auto& branch : attention_)
    if (branch->span() != nullptr) out.layers.push_back(branch->span()->name);
  return out;
}

// Pairs as if the memory were full and every span the longest.
SequenceCost DistanceDecoder::cost(std::int64_t positions) const {
  SequenceCost cost;
  const MemoryConfig& m = config_.memory;
  const double n = static_cast<double>(positions), memory = static_cast<double>(m.rows());
  std::vector<float> longest = spans_of(static_cast<double>(config_.distance.span.longest));
  const Tensor spans = longest.empty() ? Tensor{} : Tensor(longest.data(), Dtype::f32, {config_.heads});
  for (const auto& branch : attention_)
    cost.allowed_pairs += static_cast<double>(branch->mask(positions, spans).weighted_pairs());
  cost.dense_pairs = static_cast<double>(config_.layers * config_.heads) * n * (memory + (n + 1) / 2);
  const double scores = config_.distance.table == DistanceTable::none ? 1.0 : 2.0;
  const double products =
      2.0 * (scores * static_cast<double>(config_.key_size()) + static_cast<double>(config_.value_size()));
  // Keys and values of the memory are projected as well, and their weights have a gradient.
  const double projected = static_cast<double>(config_.layers * config_.width * config_.heads) *
                           static_cast<double>(config_.key_size() + config_.value_size());
  cost.training_flops = 6.0 * static_cast<double>(parameters_.count()) * n + 4.0 * projected * memory +
                        3.0 * products * cost.allowed_pairs;
  if (m.learns_to_compress()) cost.training_flops += learning_flops(n) - 6.0 * compressor_parameters() * n;
  return cost;
}

}  // namespace longstride
