#include "datasets/objectives/of_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/core/errors.h"

namespace longstride {

void OfRows::visit(SettingsVisitor& v) {
  constexpr Range counts{2, 65536, false, false, "a whole number from 2 to 65,536"};
  v.field(counted(), count_, Need::required, counts);
  v.choice("read", read_, Need::optional, Choices<RowRead>{{"classify", RowRead::classify}, {"mean", RowRead::mean}});
}

void OfRows::write(const Batch& batch, std::int64_t row, const RowBytes& of, const RowKey& /*key*/) const {
  const std::int64_t seq = batch.tokens.size(1), first = leading();
  LONGSTRIDE_CHECK(batch.tokens.dtype() == Dtype::u16, "the id [classify] in tokens of 8 bits");
  const std::int64_t count = std::min(of.length.value_or(seq), seq - first);
  auto* tokens = batch.tokens.as<std::uint16_t>() + row * seq;
  std::fill_n(tokens, first, static_cast<std::uint16_t>(ids::classify));
  std::copy_n(of.bytes, count, tokens + first);
  std::fill(tokens + first + count, tokens + seq, static_cast<std::uint16_t>(ids::pad));
  if (batch.starts.given()) batch.starts.as<std::uint8_t>()[row] = of.starts ? 1 : 0;
  if (!batch.targets.given()) return;
  const bool known = std::ssize(of.labels) == asked();  // but for bytes that are to be answered
  for (std::int64_t i = 0; i < asked(); ++i) {
    batch.targets.as<std::uint16_t>()[row * asked() + i] = known ? of.labels[static_cast<std::size_t>(i)] : 0;
    batch.weights.as<float>()[row * asked() + i] = known ? 1.0f : 0.0f;
  }
}

void OfRows::add(const Answered& one, double* sums) const {
  sums[0] += one.loss;
  sums[1] += one.right ? one.weight : 0;
}

// The best checkpoint is that of the accuracy; training knows the loss alone.
std::vector<Figure> OfRows::figures(const Scored& scored) const {
  const Figure loss{"loss", scored.loss(), true, scored.error, "nats"};
  if (scored.sums.size() == 1) return {loss};
  return {{"accuracy", scored.sums[1] / scored.weight, false}, loss};
}

std::string Classes::problem_of_labels(std::span<const std::uint16_t> labels) const {
  if (labels.front() < count()) return {};
  return fmt::format("has class {}, but objective.classes is {}; set it to the number of classes", labels.front(),
                     count());
}

std::string IndependentLabels::problem_of_labels(std::span<const std::uint16_t> labels) const {
  const auto other = std::find_if(labels.begin(), labels.end(), [](std::uint16_t label) { return label > 1; });
  if (other == labels.end()) return {};
  return fmt::format(
      "has label {}, but those of objective.kind labels are 0 or 1; for a class set objective.kind: "
      "classes",
      *other);
}

nlohmann::ordered_json IndependentLabels::answers_of(const AnsweredRow& row) const {
  std::vector<std::int64_t> yes;
  std::vector<double> probabilities;
  for (std::int64_t i = 0; i < count(); ++i) {
    probabilities.push_back(1 / (1 + std::exp(-static_cast<double>(row.scores[i]))));
    if (row.scores[i] >= 0) yes.push_back(i);
  }
  return {{{"position", row.first}, {"labels", yes}, {"probabilities", probabilities}}};
}

double IndependentLabels::guess() const { return std::log(2.0); }

nlohmann::ordered_json Classes::answers_of(const AnsweredRow& row) const {
  const std::int64_t best = std::max_element(row.scores, row.scores + row.answers) - row.scores;
  std::vector<double> probabilities;
  double sum = 0;
  for (std::int64_t i = 0; i < row.answers; ++i)
    sum += probabilities.emplace_back(std::exp(static_cast<double>(row.scores[i] - row.scores[best])));
  for (double& p : probabilities) p /= sum;
  return {{{"position", row.first}, {"class", best}, {"probabilities", probabilities}}};
}

double Classes::guess() const { return std::log(static_cast<double>(count())); }

}  // namespace longstride
