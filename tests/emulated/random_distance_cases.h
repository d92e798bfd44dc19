// Random shapes of attention with a distance term, all of which Hopper's kernels take. A number always gives the same
// case, named after what it is.
#pragma once
#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "tests/ops/dense_distance_attention.h"

namespace longstride::testing {

class RandomDistanceCase {
 public:
  explicit RandomDistanceCase(std::uint32_t number) : random_(number) {}

  DistanceCase drawn() {
    c_.heads = between(1, 4);
    c_.batch = between(1, 3);
    c_.size = 8 * between(5, 8);
    c_.value_size = 8 * between(5, 8);
    const bool with_table = between(0, 3) > 0;
    const std::int64_t period = draw_dilation();
    c_.n_q = period * between(4, 220 / period);
    c_.n_k = c_.n_q + period * (between(0, 2) > 0 ? between(0, 300 / period) : 0);
    // One key alone has probability 1, and gradients that are what rounding leaves.
    c_.window = between(0, 2) > 0 ? between(3, c_.n_k) : 0;
    c_.self = between(0, 3) > 0;
    c_.biases = between(0, 2) > 0;
    if (between(0, 2) == 0) draw_spans();
    if (with_table) draw_table();
    if (between(0, 2) == 0)
      for (std::int64_t s = 0; s < c_.batch; ++s) c_.first_key.push_back(static_cast<double>(between(0, c_.n_k)));
    if (between(0, 1) > 0) c_.saved_bytes = between(1, 3'000'000);
    name();
    return c_;
  }

 private:
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random_() % static_cast<std::uint32_t>(most - least + 1));
  }
  // A third of the cases have dilated heads. Returns the divisor that numbers of queries and keys must have.
  std::int64_t draw_dilation() {
    if (between(0, 2) > 0) return 1;
    const std::int64_t step = between(2, 4);
    for (std::int64_t h = 0; h < c_.heads; ++h)
      c_.dilation.push_back(static_cast<std::int32_t>(between(0, 1) > 0 ? step : 1));
    return step;
  }
  // No distance is at an end of a ramp, where gradients jump.
  void draw_spans() {
    c_.ramp = static_cast<double>(between(2, 48));
    c_.longest_span = static_cast<double>(between(8, 300));
    for (std::int64_t h = 0; h < c_.heads; ++h)
      c_.span.push_back((static_cast<double>(between(0, static_cast<std::int64_t>(1.1 * c_.longest_span))) + 0.3) /
                        c_.longest_span);
  }
  // With a row for every distance that a pair has.
  void draw_table() {
    const std::int64_t farthest = c_.dilation.empty() ? 1 : *std::max_element(c_.dilation.begin(), c_.dilation.end());
    const std::int64_t most = c_.window > 0 ? std::min(c_.window, c_.n_k) : c_.n_k;
    c_.distances = std::min(c_.n_k, (most - 1) * farthest + 1) + between(0, 20);
    c_.tables = between(0, 1) > 0 ? c_.heads : 1;
  }
  void name() {
    c_.name = std::to_string(c_.batch) + " x " + std::to_string(c_.n_q) + " of " + std::to_string(c_.n_k) + ", " +
              std::to_string(c_.heads) + " heads of " + std::to_string(c_.size) + " and " +
              std::to_string(c_.value_size);
    if (c_.window > 0) c_.name += ", window " + std::to_string(c_.window);
    if (!c_.dilation.empty()) c_.name += ", dilated";
    if (!c_.span.empty()) c_.name += ", spans";
    c_.name += c_.distances == 0 ? ", no table" : c_.tables > 1 ? ", tables" : ", one table";
  }

  std::mt19937 random_;
  DistanceCase c_;
};

}  // namespace longstride::testing
