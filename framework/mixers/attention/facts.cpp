// The answers of a layer of attention with a pattern: cost, weights of pairs, reach, slow shapes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "framework/core/errors.h"
#include "framework/mixers/attention/mixer.h"
#include "framework/mixers/slow_shape.h"
#include "kernels/attention/choice.h"
#include "kernels/attention/fast_path.h"

namespace longstride {
namespace {

std::string sentence(const kernels::FastPath& path) {
  switch (path.slowness) {
    case kernels::Slowness::head_size:
      return fmt::format("heads of size {} {}; {} fast (model.width / model.heads)", path.value, portable_kernels,
                         nearest_fast(path));
    case kernels::Slowness::narrow_window:
      return fmt::format(
          "windows of {} take {:.1f} times as long as their operations suggest with heads above 64; {} is fast "
          "(model.attention.window), or heads of 64 (model.width / model.heads)",
          path.value, path.work, path.above);
    case kernels::Slowness::short_column:
      return fmt::format(
          "columns of {} positions take {:.1f} times as long as their operations suggest; strides of up to {} are fast "
          "(model.attention.stride)",
          path.value, path.work, path.below);
    case kernels::Slowness::narrow_summary:
      return fmt::format(
          "summaries of {} positions take {:.1f} times as long as their operations suggest; {} is fast "
          "(model.attention.summary)",
          path.value, path.work, path.above);
    case kernels::Slowness::column_head:
      return fmt::format(
          "columns with heads of {} take {:.1f} times as long as with heads of {} (model.width / model.heads)",
          path.value, path.work, path.above);
    case kernels::Slowness::geometry:
      return fmt::format(
          "patterns with too many kinds of key rows {}; fewer widths in model.attention.summary are fast",
          portable_kernels);
    default:
      return "";
  }
}

// softmax(q_i (k_j + A_j) / sqrt(d)) of the first `rows` keys, over those that the pattern allows and the sink
// (-infinity: none); 0 elsewhere. key_head: the one that the head reads. label: A_j, or null.
std::vector<double> probabilities_of(const Tensor& queries, const Tensor& keys, std::int64_t query, std::int64_t head,
                                     std::int64_t key_head, std::int64_t rows, const Mixer::PairWeight& weight,
                                     const std::function<const float*(std::int64_t)>& label, double sink) {
  const std::int64_t size = queries.size(3);
  const float* q = queries.as<float>() + query * queries.stride(1) + head * queries.stride(2);
  std::vector<double> out(static_cast<std::size_t>(rows), -HUGE_VAL);
  double most = sink;
  for (std::int64_t j = 0; j < rows; ++j) {
    if (weight(query, j) == 0) continue;
    const float* k = keys.as<float>() + j * keys.stride(1) + key_head * keys.stride(2);
    double score = 0;
    const float* a = label(j);
    for (std::int64_t c = 0; c < size; ++c)
      score += static_cast<double>(q[c]) * (static_cast<double>(k[c]) + (a != nullptr ? static_cast<double>(a[c]) : 0));
    most = std::max(most, out[static_cast<std::size_t>(j)] = score / std::sqrt(static_cast<double>(size)));
  }
  double sum = std::isinf(sink) ? 0 : std::exp(sink - most);
  for (double& w : out) sum += w = std::isinf(w) ? 0 : std::exp(w - most);
  for (double& w : out) w = sum > 0 ? w / sum : 0;
  return out;
}

// One part of one residue class: queries in order see intervals whose ends never go back.
void extend_by(Reach& reach, const Reach& below, const kernels::Pass& pass, const kernels::Part& part,
               std::int32_t residue) {
  const auto n = static_cast<std::int32_t>(reach.segment());
  const kernels::RowSet queries = kernels::rows_within(pass.queries, residue, n),
                        keys = kernels::rows_within(part.keys, residue, n);
  SlidingLeast least;
  std::int32_t entered = 0;
  for (std::int32_t t = 0; t < queries.length; ++t) {
    const std::int32_t query = queries.position(t);
    const auto [begin, end] = part.interval(keys, query);
    for (; entered < end; ++entered) least.enter(entered, below.earliest_of(keys.position(entered)));
    least.leave_before(begin);
    if (begin < end && !least.empty()) reach.lower(query, least.least());
  }
}

// The keys of a row, whose order is natural.
std::int64_t keys_of_row(const kernels::AttentionPlan& plan, std::int64_t head, std::int32_t row) {
  std::int64_t keys = 0;
  for (const kernels::Pass& pass : plan.passes_of(head))
    for (const kernels::Part& part : plan.parts_of(pass)) {
      const auto [begin, end] = part.interval(part.keys, row);
      keys += std::max(end - begin, 0);
    }
  return keys;
}

}  // namespace

std::string AttentionMixer::kind(std::int64_t head) const {
  std::string out;
  for (kernels::PartKind part : kernels::parts_of(plans_->pattern(), layer_, config_.heads, head))
    out += (out.empty() ? "" : " and ") + std::string(kernels::name_of(part));
  return out;
}

PairCost AttentionMixer::cost(std::int64_t positions) const {
  PairCost cost;
  const auto plan = plans_->plan(layer_, positions);
  const std::int64_t added = config_.global.added,
                     seen_by_added = config_.global.own_group ? positions : added * positions;
  for (std::int64_t head = 0; head < config_.heads; ++head) {
    cost.pairs +=
        static_cast<double>(kernels::allowed_pairs(plans_->pattern(), layer_, config_.heads, head, positions));
    if (added > 0) {
      cost.pairs += static_cast<double>(positions * added + added * added + seen_by_added);
      continue;
    }
    for (std::int64_t row = 0; row < global_rows(positions); ++row)
      cost.pairs += static_cast<double>(positions - keys_of_row(*plan, head, static_cast<std::int32_t>(row)));
  }
  const auto n = static_cast<double>(added + positions), key = static_cast<double>(config_.key_size),
             value = static_cast<double>(config_.value_size);
  cost.dense_pairs = static_cast<double>(config_.heads) * (key_rows().ahead ? n * n : n * (n + 1) / 2);
  cost.forward_flops = 2.0 * cost.pairs * (key + value);
  cost.backward_flops = 2.0 * cost.pairs * (3 * key + 2 * value);
  cost.training_flops = 3.0 * cost.forward_flops;
  return cost;
}

Mixer::PairWeight AttentionMixer::pair_weight(std::int64_t head, double /*span*/) const {
  const std::int64_t added = config_.global.added, first = config_.global.first;
  if (kernels::has_lists(plans_->pattern(), layer_, config_.heads)) {
    const std::int64_t block = plans_->pattern().block;
    return [block, added,
            lists = kernels::key_blocks(plans_->pattern(), layer_, head, kernels::blocks_in(config_.segment, block))](
               std::int64_t query, std::int64_t key) {
      if (key < added) return 1.0;
      const auto& list = lists[static_cast<std::size_t>(query / block)];
      return std::binary_search(list.begin(), list.end(), (key - added) / block) ? 1.0 : 0.0;
    };
  }
  return [this, head, added, first](std::int64_t query, std::int64_t key) {
    if (query < first || key < added) return 1.0;
    const bool allowed =
        kernels::allowed(plans_->pattern(), layer_, config_.heads, head, config_.segment, query, key - added);
    return allowed ? 1.0 : 0.0;
  };
}

// The vectors of labels between a query position and key rows; null without labels. On the CPU.
std::function<const float*(std::int64_t)> AttentionMixer::label_vectors(const Context& ctx, std::int64_t query,
                                                                        std::int64_t head) const {
  if (labels_ == nullptr) return [](std::int64_t) -> const float* { return nullptr; };
  const auto* const of_positions = ctx.global.group_of_position.as<const std::int32_t>();
  const std::int64_t added = config_.global.added, clip = config_.labels, size = config_.key_size,
                     group = of_positions != nullptr ? of_positions[query] : -1;
  const float* const table = labels_->value.as<const float>() + head * size;
  return [=, stride = config_.heads * size](std::int64_t key) {
    const bool other = of_positions != nullptr && group != key;
    const std::int64_t label =
        key < added ? 2 * clip + 1 + (other ? 1 : 0) : std::clamp(key - added - query, -clip, clip) + clip;
    return table + label * stride;
  };
}

void AttentionMixer::show_probabilities(Context& ctx, const Tensor& normed, const std::vector<std::int64_t>& queries,
                                        const SeeProbabilities& see) const {
  LONGSTRIDE_CHECK(ctx.compute == Dtype::f32, "probabilities are shown of fp32");
  Scratch scratch(ctx);
  const std::int64_t added = config_.global.added;
  const QkvHeads seen = project(ctx, normed, 0, scratch);
  const QkvHeads of_global = project_global(ctx, normed, seen, scratch, nullptr).heads;
  if (ctx.planning()) return;
  const auto* begin = ctx.documents.begin.as<const std::int32_t>();
  const auto* end = ctx.documents.end.as<const std::int32_t>();
  const auto* first_row = ctx.global.rows_by_positions.begin.as<const std::int32_t>();
  const bool both = plans_->pattern().direction == kernels::Direction::both;
  for (std::size_t n = 0; n < queries.size(); ++n) {
    std::vector<std::vector<double>> heads;
    const std::int64_t query = queries[n], first = begin != nullptr ? begin[query] : 0,
                       beyond = end != nullptr ? std::int64_t{end[query]} : normed.size(1) - added,
                       first_used = first_row != nullptr ? first_row[query] : 0,
                       rows = both ? normed.size(1) : query + 1;
    for (std::int64_t head = 0; head < config_.heads; ++head) {
      const PairWeight weight = pair_weight(head, 0);
      const auto of_document = [&](std::int64_t i, std::int64_t j) {
        const bool hidden = j < added ? j < first_used : j - added < first || j - added >= beyond;
        return hidden ? 0 : weight(i - added, j);
      };
      const QkvHeads& from = added == 0 && query < global_rows(normed.size(1)) ? of_global : seen;
      heads.push_back(probabilities_of(from.q, from.k, added + query, head, keys_of(head), rows, of_document,
                                       label_vectors(ctx, query, head),
                                       has_sink() ? static_cast<double>(sink_->master.as<float>()[head]) : -HUGE_VAL));
    }
    see(n, heads);
  }
}

void AttentionMixer::extend(Reach& reach) const {
  const Reach below = reach;
  const auto plan = plans_->plan(layer_, reach.segment());
  for (const kernels::Pass& pass : plan->passes)
    for (const kernels::Part& part : plan->parts_of(pass))
      for (std::int32_t residue = 0; residue < pass.classes; ++residue) extend_by(reach, below, pass, part, residue);
}

std::string AttentionMixer::slow(std::int64_t positions) const {
  const auto plan = plans_->plan(layer_, positions);
  if (labels_ != nullptr) {
    const kernels::AttentionSizes sizes{.plan = plan.get(),
                                        .key_size = config_.key_size,
                                        .value_size = config_.value_size,
                                        .has_lists = plans_->lists(layer_, positions) != nullptr,
                                        .labels = 2 * config_.labels + 1};
    if (kernels::choose_forward(sizes).family != kernels::AttentionFamily::portable) return "";
    return fmt::format("labels {}; with windows, blocks or all keys, and heads of 16 to 64, they are fast",
                       portable_kernels);
  }
  return sentence(kernels::fast_path_of(*plan, config_.key_size, config_.value_size));
}

std::string AttentionMixer::problem_on_gpu() const {
  constexpr std::int64_t widest_head = 128;
  const std::int64_t head = std::max(config_.key_size, config_.value_size);
  if (head <= widest_head) return "";
  return fmt::format(
      "model.heads is {}, which makes heads of size {}, but must make them at most {} on a GPU; use more heads, or "
      "--device cpu",
      config_.heads, head, widest_head);
}

std::string AttentionMixer::problem_of_ranks(int ranks) const {
  if (config_.key_heads % ranks == 0) return "";
  if (config_.heads % ranks == 0)
    return fmt::format(
        "parallel.sequence_ranks is {}, which does not divide model.attention.key_heads, {}; choose a divisor", ranks,
        config_.key_heads);
  return fmt::format("parallel.sequence_ranks is {}, which does not divide model.heads, {}; choose a divisor", ranks,
                     config_.heads);
}

std::string AttentionMixer::summary() const {
  std::string parts;
  for (kernels::PartKind part : plans_->pattern().parts)
    parts += (parts.empty() ? "" : ", ") + std::string(name_of(part));
  return fmt::format("{}, stride {}", parts, plans_->pattern().stride);
}

}  // namespace longstride
