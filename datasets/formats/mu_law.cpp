#include "datasets/formats/mu_law.h"

#include <algorithm>
#include <cmath>

namespace longstride {
namespace {

constexpr double mu = 255;

}  // namespace

std::uint8_t mu_law_encode(float sample) {
  const double x = std::isnan(sample) ? 0.0 : std::clamp(static_cast<double>(sample), -1.0, 1.0);
  const double f = std::copysign(std::log1p(mu * std::abs(x)) / std::log1p(mu), x);
  return static_cast<std::uint8_t>((f + 1) / 2 * mu + 0.5);
}

float mu_law_decode(std::uint8_t level) {
  const double f = 2 * level / mu - 1;
  return static_cast<float>(std::copysign(std::expm1(std::abs(f) * std::log1p(mu)) / mu, f));
}

std::vector<float> mu_law_decode(const std::vector<std::uint8_t>& levels) {
  std::vector<float> out(levels.size());
  std::transform(levels.begin(), levels.end(), out.begin(), [](std::uint8_t level) { return mu_law_decode(level); });
  return out;
}

}  // namespace longstride
