// What a decoder with a distance term shows of its attention.
#include <fmt/format.h>

#include "framework/models/decoder/distance_decoder.h"
#include "framework/mixers/look_back.h"

namespace longstride {

AttentionShape DistanceDecoder::attention_shape() const {
  const MemoryConfig& m = config_.memory;
  return {config_.layers, config_.heads, {m.compressed, m.length, config_.context, m.compressed > 0 ? m.rate : 0}, 0};
}

std::string DistanceDecoder::attention_kind(std::int64_t layer, std::int64_t head) const {
  const DistanceConfig& d = config_.distance;
  const std::int64_t window = windows_->of(layer), dilation = d.dilation_of(layer, head);
  std::string out = window > 0 ? fmt::format("a window of {} keys", window) : "all keys";
  if (dilation > 1) out += fmt::format(", every {} positions", dilation);
  if (d.span.given()) out += ", as far as its span";
  return out;
}

kernels::DistanceScores DistanceDecoder::mask(std::int64_t layer, std::vector<float>& spans) const {
  const Tensor shares = spans.empty() ? Tensor{} : Tensor(spans.data(), Dtype::f32, {std::ssize(spans)});
  return attention_[static_cast<std::size_t>(layer)]->mask(config_.context, shares);
}

std::vector<float> DistanceDecoder::spans_of(double span) const {
  const LearnedSpans& c = config_.distance.span;
  if (!c.given()) return {};
  return std::vector<float>(static_cast<std::size_t>(config_.heads),
                            static_cast<float>(span / static_cast<double>(c.longest)));
}

ShowsAttention::PairWeight DistanceDecoder::pair_weight(std::int64_t layer, std::int64_t head, double span) const {
  auto spans = std::make_shared<std::vector<float>>(spans_of(span));
  return [spans, head, scores = mask(layer, *spans)](std::int64_t query, std::int64_t key) {
    return scores.weight(head, query, key);
  };
}

LookBack DistanceDecoder::look_back() const {
  std::vector<float> longest = spans_of(static_cast<double>(config_.distance.span.longest));
  std::vector<kernels::DistanceScores> masks;
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) masks.push_back(mask(layer, longest));
  return look_back_through(masks, config_.memory);
}

LookBack DistanceDecoder::look_back_of_layer(std::int64_t layer) const {
  std::vector<float> longest = spans_of(static_cast<double>(config_.distance.span.longest));
  return look_back_through({mask(layer, longest)}, config_.memory);
}

double DistanceDecoder::mean_keys(double span) const {
  std::vector<float> spans = spans_of(span);
  double pairs = 0;
  for (std::int64_t layer = 0; layer < config_.layers; ++layer)
    pairs += static_cast<double>(mask(layer, spans).weighted_pairs());
  return pairs / static_cast<double>(config_.layers * config_.heads * config_.context);
}

std::vector<AttendsByDistance::Layer> DistanceDecoder::distance_attention() const {
  std::vector<Layer> layers;
  for (const auto& branch : attention_) layers.push_back({branch->shapes(config_.context), config_.value_size()});
  return layers;
}

void DistanceDecoder::visit_attention(Context& ctx, const Batch& batch, const std::vector<std::int64_t>& queries,
                                      const AttentionVisitor& visit) const {
  LONGSTRIDE_CHECK(batch.rows() == 1 && ctx.device == Device::cpu, "{} rows", batch.rows());
  trunk_.observe_attention(ctx, batch, [&](Context& quiet, std::int64_t layer, const Tensor& normed) {
    Probabilities all(queries.size(), std::vector<std::vector<double>>(static_cast<std::size_t>(config_.heads)));
    const auto see = [&](std::size_t n, const Tensor& probabilities) {
      if (quiet.planning()) return;
      kernels::with_float_type(probabilities.dtype(), [&](auto zero) {
        const auto* p = probabilities.as<const decltype(zero)>();
        for (std::int64_t head = 0; head < config_.heads; ++head)
          for (std::int64_t j = 0; j < probabilities.size(1); ++j)
            all[n][static_cast<std::size_t>(head)].push_back(
                static_cast<double>(p[j * probabilities.stride(1) + head * probabilities.stride(2)]));
      });
    };
    attention_[static_cast<std::size_t>(layer)]->show_probabilities(quiet, normed, queries, see);
    if (!quiet.planning()) visit(layer, all);
  });
}

}  // namespace longstride
