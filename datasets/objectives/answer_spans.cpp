#include "datasets/objectives/answer_spans.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "datasets/objectives/row_tokens.h"
#include "framework/core/text/numbers.h"
#include "kernels/span_loss/best_span.h"

namespace longstride {

std::string Spans::problem_of_labels(std::span<const std::uint32_t> labels, std::int64_t bytes) const {
  if (labels[0] <= labels[1] && labels[1] <= bytes) return {};
  return fmt::format(
      "has labels {} and {}, but those of objective.kind spans are where the answer begins and ends, from 0 to its {} "
      "bytes; correct them, with twice the same number where there is no answer",
      labels[0], labels[1], thousands(bytes));
}

void Spans::write(const Batch& batch, std::int64_t row, const RowBytes& of, const RowKey& /*key*/) const {
  const std::int64_t count = write_tokens(batch, row, of, leading());
  if (!batch.targets.given()) return;
  const bool known = std::ssize(of.labels) == labels();  // but for bytes that are to be answered
  const std::int64_t begin = known ? of.labels[0] - of.offset : 0, end = known ? of.labels[1] - of.offset : 0;
  const bool whole = 0 <= begin && begin < end && end <= count;
  auto* const targets = batch.targets.as<std::uint16_t>() + 2 * row;
  targets[0] = static_cast<std::uint16_t>(whole ? leading() + begin : 0);
  targets[1] = static_cast<std::uint16_t>(whole ? leading() + end - 1 : 0);
  std::fill_n(batch.weights.as<float>() + 2 * row, 2, known ? 1.0f : 0.0f);
}

void Spans::add(const Answered& one, double* sums) const {
  sums[0] += one.loss;
  sums[1 + one.number] += one.right * one.weight;  // the first of a row is the exact match, the second F1
}

// The weight counts both ends.
std::vector<Figure> Spans::figures(const Scored& scored) const {
  const Figure loss{"loss", scored.loss(), true, scored.error, "nats"};
  if (scored.sums.size() == 1) return {loss};
  const double rows = scored.weight / 2;
  return {{"F1", scored.sums[2] / rows, false}, {"exact match", scored.sums[1] / rows, false}, loss};
}

// At most, since longer rows have more positions to choose from.
double Spans::guess() const { return std::log(static_cast<double>(most_context())); }

nlohmann::ordered_json Spans::answers_of(const AnsweredRow& row) const {
  const float *const starts = row.scores, *const ends = row.scores + row.answers;
  kernels::BestSpan<float> others;
  double sums[2] = {0, 0};
  float most[2] = {starts[0], ends[0]};
  for (std::int64_t t = 1; t < row.answers; ++t) {
    others = others.join(kernels::BestSpan<float>::of(starts[t], ends[t], static_cast<std::int32_t>(t)));
    most[0] = std::max(most[0], starts[t]), most[1] = std::max(most[1], ends[t]);
  }
  for (std::int64_t t = 0; t < row.answers; ++t)
    for (int c = 0; c < 2; ++c)
      sums[c] += std::exp(static_cast<double>(row.scores[c * row.answers + t]) - static_cast<double>(most[c]));
  const kernels::SpanPlaces best = kernels::best_places(starts[0] + ends[0], others);
  const double log_odds = static_cast<double>(starts[best.first]) - static_cast<double>(most[0]) +
                          static_cast<double>(ends[best.last]) - static_cast<double>(most[1]);
  nlohmann::ordered_json answer = {{"position", row.first}, {"begin", nullptr}, {"end", nullptr}};
  if (best.last > 0) {
    answer["begin"] = row.first + best.first - leading();
    answer["end"] = row.first + best.last - leading() + 1;
  }
  answer["probability"] = std::exp(log_odds) / (sums[0] * sums[1]);
  return nlohmann::ordered_json::array({answer});
}

}  // namespace longstride
