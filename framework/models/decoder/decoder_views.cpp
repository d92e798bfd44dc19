// What a decoder with a pattern shows of its attention.
#include <cmath>

#include "framework/models/decoder/decoder.h"

namespace longstride {
namespace {

// softmax(q_i k_j / sqrt(d)) over the keys that the pattern allows; 0 elsewhere.
std::vector<double> probabilities_of(const Tensor& queries, const Tensor& keys, std::int64_t query, std::int64_t head,
                                     const ShowsAttention::PairWeight& weight) {
  const std::int64_t size = queries.size(3);
  const float* q = queries.as<float>() + query * queries.stride(1) + head * queries.stride(2);
  std::vector<double> out(static_cast<std::size_t>(query) + 1, -HUGE_VAL);
  double most = -HUGE_VAL;
  for (std::int64_t j = 0; j <= query; ++j) {
    if (weight(query, j) == 0) continue;
    const float* k = keys.as<float>() + j * keys.stride(1) + head * keys.stride(2);
    double score = 0;
    for (std::int64_t c = 0; c < size; ++c) score += static_cast<double>(q[c]) * static_cast<double>(k[c]);
    most = std::max(most, out[static_cast<std::size_t>(j)] = score / std::sqrt(static_cast<double>(size)));
  }
  double sum = 0;
  for (double& w : out) sum += w = std::isinf(w) ? 0 : std::exp(w - most);
  for (double& w : out) w = sum > 0 ? w / sum : 0;
  return out;
}

}  // namespace

AttentionShape Decoder::attention_shape() const {
  return {config_.layers, config_.heads, {.segment = config_.context}, config_.attention.stride};
}

std::string Decoder::attention_kind(std::int64_t layer, std::int64_t head) const {
  std::string out;
  for (kernels::PartKind part : kernels::parts_of(config_.attention, layer, config_.heads, head))
    out += (out.empty() ? "" : " and ") + std::string(kernels::name_of(part));
  return out;
}

ShowsAttention::PairWeight Decoder::pair_weight(std::int64_t layer, std::int64_t head, double) const {
  return [this, layer, head](std::int64_t query, std::int64_t key) {
    return kernels::allowed(config_.attention, layer, config_.heads, head, query, key) ? 1.0 : 0.0;
  };
}

void Decoder::visit_attention(Context& ctx, const Batch& batch, const std::vector<std::int64_t>& queries,
                              const AttentionVisitor& visit) const {
  LONGSTRIDE_CHECK(batch.rows() == 1 && ctx.compute == Dtype::f32, "{} rows", batch.rows());
  trunk_.observe_attention(ctx, batch, [&](Context& quiet, std::int64_t layer, const Tensor& normed) {
    Scratch inner(quiet);
    const AttentionMixer::QkvHeads seen =
        attention_[static_cast<std::size_t>(layer)]->project(quiet, normed, 0, inner);
    if (quiet.planning()) return;
    Probabilities all(queries.size());
    for (std::size_t n = 0; n < queries.size(); ++n)
      for (std::int64_t head = 0; head < config_.heads; ++head)
        all[n].push_back(probabilities_of(seen.q, seen.k, queries[n], head, pair_weight(layer, head, 0)));
    visit(layer, all);
  });
}

}  // namespace longstride
