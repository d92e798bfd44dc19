// A choice among answers by their scores.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace longstride {

struct Choice {
  std::int64_t best = 0;
  double probability = 0, bits = 0;  // the best one's, and of the target: -log2 p
};

// scores: logarithms of probabilities, but for a sum.
inline Choice choice_of(const float* scores, std::int64_t count, std::int64_t target) {
  const std::int64_t best = std::max_element(scores, scores + count) - scores;
  double sum = 0;
  for (std::int64_t a = 0; a < count; ++a) sum += std::exp(static_cast<double>(scores[a] - scores[best]));
  return {best, 1 / sum, (std::log(sum) + static_cast<double>(scores[best] - scores[target])) / std::numbers::ln2};
}

}  // namespace longstride
