// The answers of a layer of distance attention: cost, weights of pairs, reach, slow shapes.
#include <fmt/format.h>

#include <algorithm>

#include "framework/mixers/distance/mixer.h"
#include "framework/mixers/slow_shape.h"
#include "kernels/distance_attention/fast_path.h"

namespace longstride {
namespace {

std::string sentence(const kernels::DistanceFastPath& path) {
  switch (path.slowness) {
    case kernels::DistanceSlowness::head_size:
      return fmt::format("heads of size {} with model.distance {}; {} fast (model.width / model.heads)", path.value,
                         portable_kernels, nearest_fast(path));
    case kernels::DistanceSlowness::dropout:
      return fmt::format("dropout of attention probabilities {}; 0 is fast (model.distance.dropout)", portable_kernels);
    case kernels::DistanceSlowness::bounds:
      return fmt::format("documents apart with model.distance {}; joined is fast (data.documents)", portable_kernels);
    case kernels::DistanceSlowness::dilation:
      return fmt::format(
          "heads with a dilation of {} {}, unless it divides the context and the memory; 1 is fast "
          "(model.distance.dilation)",
          path.value, portable_kernels);
    case kernels::DistanceSlowness::table:
      return fmt::format(
          "tables of {} rows, of which the last stands for several distances, {}; a row for every distance is fast "
          "(model.distance.distances)",
          path.value, portable_kernels);
    default:
      return "";
  }
}

}  // namespace

std::string DistanceMixer::kind(std::int64_t head) const {
  const DistanceConfig& d = config_.distance;
  const std::int64_t window = windows_->of(config_.layer), dilation = d.dilation_of(config_.layer, head);
  std::string out = window > 0 ? fmt::format("a window of {} keys", window) : "all keys";
  if (dilation > 1) out += fmt::format(", every {} positions", dilation);
  if (d.span.given()) out += ", as far as its span";
  return out;
}

KeyRows DistanceMixer::key_rows() const {
  const MemoryConfig& m = config_.memory;
  return {m.compressed, m.length, config_.segment, m.compressed > 0 ? m.rate : 0};
}

std::vector<float> DistanceMixer::shares_of(double span) const {
  const LearnedSpans& c = config_.distance.span;
  if (!c.given()) return {};
  return std::vector<float>(static_cast<std::size_t>(heads()),
                            static_cast<float>(span / static_cast<double>(c.longest)));
}

kernels::DistanceScores DistanceMixer::mask_with(std::vector<float>& shares) const {
  return mask(config_.segment, shares.empty() ? Tensor{} : Tensor(shares.data(), Dtype::f32, {std::ssize(shares)}));
}

// The compression's weight is applied twice, for the memory and for the loss, and has a gradient, for each of the rows
// that `positions` positions become. The loss projects these rows, and takes attention to old and new rows and the
// gradients of new keys and values.
double DistanceMixer::learning_flops(double positions) const {
  const double rows = positions / static_cast<double>(config_.memory.rate),
               width = static_cast<double>(config_.shape.width), keys = static_cast<double>(query_width()),
               values = static_cast<double>(heads() * config_.value_size);
  return 6.0 * compressor_parameters() * rows + 4.0 * width * (keys + values) * rows +
         2.0 * positions * ((keys + values) * positions + (2.0 * keys + 3.0 * values) * rows);
}

double DistanceMixer::compressor_parameters() const {
  return static_cast<double>(config_.shape.width * config_.shape.width * config_.memory.rate);
}

// Pairs as if the memory were full and every span the longest. Keys and values of the memory are projected as well, and
// their weights have a gradient.
PairCost DistanceMixer::cost(std::int64_t positions) const {
  const MemoryConfig& m = config_.memory;
  const double n = static_cast<double>(positions), memory = static_cast<double>(m.rows());
  std::vector<float> longest = shares_of(static_cast<double>(config_.distance.span.longest));
  const Tensor spans = longest.empty() ? Tensor{} : Tensor(longest.data(), Dtype::f32, {heads()});
  PairCost cost;
  cost.pairs = static_cast<double>(mask(positions, spans).weighted_pairs());
  cost.dense_pairs = static_cast<double>(heads()) * n * (memory + (n + 1) / 2);
  const double scores = config_.distance.table == DistanceTable::none ? 1.0 : 2.0;
  const double products =
      2.0 * (scores * static_cast<double>(config_.shape.key_size) + static_cast<double>(config_.value_size));
  const double projected = static_cast<double>(config_.shape.width * heads()) *
                           static_cast<double>(config_.shape.key_size + config_.value_size);
  cost.training_flops = 4.0 * projected * memory + 3.0 * products * cost.pairs;
  if (m.learns_to_compress()) cost.training_flops += learning_flops(n) - 6.0 * compressor_parameters() * n;
  return cost;
}

Mixer::PairWeight DistanceMixer::pair_weight(std::int64_t head, double span) const {
  auto shares = std::make_shared<std::vector<float>>(shares_of(span));
  return [shares, head, scores = mask_with(*shares)](std::int64_t query, std::int64_t key) {
    return scores.weight(head, query, key);
  };
}

std::optional<double> DistanceMixer::mean_keys(double span) const {
  std::vector<float> shares = shares_of(span);
  return static_cast<double>(mask_with(shares).weighted_pairs()) / static_cast<double>(heads() * config_.segment);
}

// One row of a compressed memory is `rate` positions.
std::int64_t DistanceMixer::remembered_positions() const {
  return config_.memory.length + config_.memory.rate * config_.memory.compressed;
}

// The rows that are most used depend on all that were compressed before them.
bool DistanceMixer::remembers_without_end() const {
  return config_.memory.compressed > 0 && config_.memory.compress == Compression::most_used;
}

HeadSpans DistanceMixer::spans() const {
  const LearnedSpans& c = config_.distance.span;
  const auto longest = static_cast<double>(c.longest);
  return {longest, static_cast<double>(c.ramp), c.initial * longest, span_ != nullptr ? span_->name : ""};
}

std::string DistanceMixer::slow(std::int64_t positions) const {
  return sentence(kernels::fast_path_of(shapes(positions), config_.value_size));
}

std::string DistanceMixer::problem_of_ranks(int /*ranks*/) const {
  return "attention with model.distance reads whole sequences; set parallel.sequence_ranks to 1";
}

std::string DistanceMixer::summary() const {
  const DistanceConfig& d = config_.distance;
  std::string out = d.table == DistanceTable::none       ? "no table of distances"
                    : d.table == DistanceTable::sinusoid ? "sinusoids of distances"
                                                         : "a learned table of distances";
  if (const std::int64_t window = windows_->of(config_.layer); window > 0) out += fmt::format(", window {}", window);
  if (config_.memory.length > 0) out += fmt::format(", memory {}", config_.memory.length);
  if (config_.memory.compressed > 0) out += fmt::format(", compressed memory {}", config_.memory.compressed);
  if (d.span.given()) out += fmt::format(", spans of up to {}", d.span.longest);
  return out;
}

}  // namespace longstride
