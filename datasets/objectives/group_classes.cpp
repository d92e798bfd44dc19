#include "datasets/objectives/group_classes.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "datasets/objectives/of_rows.h"
#include "datasets/objectives/row_tokens.h"

namespace longstride {

void Sentences::visit(SettingsVisitor& v) { v.field("classes", classes_, Need::optional, class_counts); }

void Sentences::write(const Batch& batch, std::int64_t row, const RowBytes& of, const RowKey& /*key*/) const {
  const std::int64_t seq = batch.tokens.size(1), count = write_tokens(batch, row, of, leading());
  if (!batch.targets.given()) return;
  auto* const targets = batch.targets.as<std::uint16_t>() + row * seq;
  float* const weights = batch.weights.as<float>() + row * seq;
  std::fill_n(targets, seq, std::uint16_t{0});
  std::fill_n(weights, seq, 0.0f);
  const auto& boundaries = of.groups.boundaries;
  const std::int64_t offset = of.groups.offset;
  // The boundary behind a group's last byte is the first one of the next, of those that are equal.
  for (auto end = std::upper_bound(boundaries.begin(), boundaries.end(), offset);
       end != boundaries.end() && *end - offset <= count; end = std::upper_bound(end, boundaries.end(), *end)) {
    const std::int64_t last = *end - offset - 1, group = end - boundaries.begin() - 1;
    weights[last] = 1;
    if (!of.group_labels.empty()) targets[last] = of.group_labels[static_cast<std::size_t>(group)];
  }
}

nlohmann::ordered_json Sentences::answers_of(const AnsweredRow& row) const {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  const auto* const weights = row.batch.weights.as<const float>();
  for (std::int64_t p = 0; p < row.batch.tokens.size(1); ++p)
    if (weights[p] != 0) out.push_back(choice_of(row.first + p, row.scores + p * row.answers, row.answers));
  return out;
}

void Sentences::add(const Answered& one, double* sums) const {
  sums[0] += one.loss;
  sums[1] += one.right * one.weight;
}

std::vector<Figure> Sentences::figures(const Scored& scored) const { return figures_of_choices(scored); }

double Sentences::guess() const { return std::log(static_cast<double>(classes_)); }

}  // namespace longstride
