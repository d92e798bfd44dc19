// The answers of a layer of a scan: cost, weights of pairs, probabilities, reach.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "framework/mixers/scan/mixer.h"
#include "framework/mixers/slow_shape.h"
#include "kernels/scan/choice.h"

namespace longstride {
namespace {

// The weights of keys `first` to `last` of a head, of rows 0 to `last`: phi_q . phi_k and the decay since.
std::vector<double> weights_of(const Tensor& phi_q, const Tensor& phi_k, const Tensor& decay, std::int64_t query,
                               std::int64_t head, std::int64_t first, std::int64_t last) {
  const std::int64_t size = phi_q.size(3), heads = phi_q.size(2);
  std::vector<double> out(static_cast<std::size_t>(last) + 1, 0.0);
  const float* q = phi_q.as<float>() + query * phi_q.stride(1) + head * phi_q.stride(2);
  double log_decay = 0;
  for (std::int64_t j = last; j >= first; --j) {
    const float* k = phi_k.as<float>() + j * phi_k.stride(1) + head * phi_k.stride(2);
    double sum = 0;
    for (std::int64_t c = 0; c < size; ++c) sum += static_cast<double>(q[c]) * static_cast<double>(k[c]);
    out[static_cast<std::size_t>(j)] = sum * std::exp(log_decay);
    if (decay.given()) log_decay += static_cast<double>(decay.as<const float>()[j * heads + head]);
  }
  return out;
}

}  // namespace

const char* name_of(ScanFeatures features) {
  switch (features) {
    case ScanFeatures::softmax:
      return "softmax";
    case ScanFeatures::trigonometric:
      return "trigonometric";
    case ScanFeatures::relu:
      return "ReLU";
    default:
      return "no";
  }
}

std::string ScanMixer::kind(std::int64_t /*head*/) const {
  const ScanSettings& s = config_.scan;
  const char* of = s.form == kernels::ScanForm::delta   ? "a delta rule"
                   : s.form == kernels::ScanForm::gated ? "a sum with decay"
                                                        : "a sum";
  return s.has_features() ? fmt::format("{} of {} {} features", of, s.count, name_of(s.features)) : std::string(of);
}

// A position multiplies every number of the state by its decay, adds a product to it, and reads it; the delta rule
// reads it twice. The backward pass computes states again and takes two gradients of each product.
PairCost ScanMixer::cost(std::int64_t positions) const {
  const auto n = static_cast<double>(positions), heads = static_cast<double>(config_.heads),
             state = static_cast<double>(key_rows_of_state() * columns()),
             projected =
                 config_.scan.has_features() ? 4.0 * static_cast<double>(rows_of_projection() * config_.key_size) : 0.0;
  PairCost cost;
  cost.pairs = cost.dense_pairs = heads * (both() ? n * n : n * (n + 1) / 2);
  const double products = (delta() ? 6.0 : 4.0) * state;
  cost.forward_flops = n * heads * products;
  cost.backward_flops = n * heads * 2.5 * products;
  cost.training_flops = 3.0 * n * heads * (products + projected);
  return cost;
}

// A state is a sum over all positions before, so no pair weighs 0.
Mixer::PairWeight ScanMixer::pair_weight(std::int64_t /*head*/, double /*span*/) const {
  return [all = both()](std::int64_t query, std::int64_t key) { return all || key <= query ? 1.0 : 0.0; };
}

std::string ScanMixer::problem_of_probabilities() const {
  const ScanFeatures features = config_.scan.features;
  if (normalises() && (features == ScanFeatures::softmax || features == ScanFeatures::relu)) return {};
  return fmt::format("heads of {} have weights that may be below 0 and add up to any number, and so no probabilities",
                     kind(0));
}

// The memory of a row has its share of the denominator, but no key row.
void ScanMixer::show_probabilities(Context& ctx, const Tensor& normed_input, const std::vector<std::int64_t>& queries,
                                   const SeeProbabilities& see) const {
  LONGSTRIDE_CHECK(ctx.compute == Dtype::f32, "probabilities are shown of fp32");
  Scratch scratch(ctx);
  const Projected in = project(ctx, normed_input, scratch, nullptr);
  const Scanned made = tensors(ctx, normed_input.size(0), normed_input.size(1), scratch, nullptr, false);
  const Operands read =
      operands(ctx, in, projection(ctx, scratch, nullptr), states_of(ctx), Pace::training, 0, scratch);
  scan(ctx, read, made, Pace::training);
  if (ctx.planning()) return;
  const auto* begin = ctx.documents.begin.as<const std::int32_t>();
  const auto* end = ctx.documents.end.as<const std::int32_t>();
  const std::int64_t n = normed_input.size(1);
  for (std::size_t i = 0; i < queries.size(); ++i) {
    std::vector<std::vector<double>> all;
    for (std::int64_t head = 0; head < config_.heads; ++head) {
      const std::int64_t query = queries[i], first = begin != nullptr ? begin[query] : 0,
                         last = !both() ? query : (end != nullptr ? std::int64_t{end[query]} : n) - 1;
      std::vector<double>& row =
          all.emplace_back(weights_of(read.phi_q, read.phi_k, read.decay, query, head, first, last));
      if (both()) row.resize(static_cast<std::size_t>(n), 0.0);
      const double sum = static_cast<double>(made.denominator.as<const float>()[head * n + queries[i]]);
      for (double& w : row) w = sum > 0 ? w / sum : 0;
    }
    see(i, all);
  }
}

void ScanMixer::extend(Reach& reach) const {
  const Reach below = reach;
  std::int64_t least = config_.scan.memory ? -Reach::without_end : 0;
  if (both()) least = below.earliest_of(0, 1, reach.segment());
  for (std::int64_t i = 0; i < reach.segment(); ++i) {
    least = std::min(least, below.earliest_of(i));
    reach.lower(i, least);
  }
}

std::string ScanMixer::state() const {
  const std::int64_t numbers = config_.heads * key_rows_of_state() * columns();
  return fmt::format("{} x {} numbers per head in place of keys, {} bytes per sequence and layer", key_rows_of_state(),
                     columns(), thousands(numbers * static_cast<std::int64_t>(sizeof(float))));
}

std::string ScanMixer::slow(std::int64_t positions) const {
  const kernels::ScanFastPath path = kernels::fast_path_of(problem(Dtype::bf16, config_.heads, positions));
  const auto sizes = [&](const char* what, const char* key) {
    return fmt::format("a scan of {} {} a head {}; {} is fast ({})", path.value, what, portable_kernels, path.below,
                       key);
  };
  const auto own = [](std::int64_t size, const char* key) { return size > 0 ? key : "model.width / model.heads"; };
  if (path.slowness == kernels::ScanSlowness::channels)
    return fmt::format("form delta with a decay per channel {}; head is fast (decay)", portable_kernels);
  if (path.slowness == kernels::ScanSlowness::key_size)
    return config_.scan.has_features() ? sizes("features", "count")
                                       : sizes("channels of keys", own(config_.scan.key_size, "key_size"));
  if (path.slowness == kernels::ScanSlowness::value_size)
    return sizes("values", own(config_.scan.value_size, "value_size"));
  return {};
}

std::string ScanMixer::problem_of_ranks(int ranks) const {
  if (config_.scan.memory)
    return "layers of kind scan with memory: state need whole rows; set parallel.sequence_ranks to 1";
  if (config_.heads % ranks != 0 || config_.key_heads % ranks != 0)
    return fmt::format(
        "parallel.sequence_ranks is {}, which does not divide a scan's {} heads, {} of keys; choose a divisor", ranks,
        config_.heads, config_.key_heads);
  return {};
}

std::string ScanMixer::summary() const {
  const ScanSettings& s = config_.scan;
  std::string out = kind(0);
  if (s.decay != ScanDecay::none) out += s.decay == ScanDecay::head ? ", decay per head" : ", decay per channel";
  if (shares_keys()) out += fmt::format(", {} heads of keys", config_.key_heads);
  if (s.time_step) out += ", values by their step";
  if (s.skip) out += ", skip";
  if (s.redraw > 0) out += fmt::format(", drawn anew every {} steps", thousands(s.redraw));
  if (s.convolution > 0) out += fmt::format(", convolution {}", s.convolution);
  if (has_gate()) out += ", gate";
  out += ", " + state();
  if (s.memory) out += ", kept from window to window";
  if (s.stabiliser == Stabiliser::published) out += ", stabilised by later keys (published), which rounding shows";
  return out;
}

}  // namespace longstride
