// How often each value of a byte occurs.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>

namespace longstride {

// Bits for each of what was counted.
template <class Counts>
double entropy_of(const Counts& counts) {
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  double bits = 0;
  for (const std::int64_t n : counts)
    if (n > 0) bits -= static_cast<double>(n) / total * std::log2(static_cast<double>(n) / total);
  return bits;
}

class Histogram {
 public:
  void add(const std::uint8_t* bytes, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) ++count_[static_cast<std::size_t>(i) % ways][bytes[i]];
  }
  std::array<std::int64_t, 256> counts() const {
    std::array<std::int64_t, 256> sum{};
    for (const auto& way : count_)
      for (std::size_t value = 0; value < sum.size(); ++value) sum[value] += way[value];
    return sum;
  }
  // Bits per byte of a model that knows only these counts: the entropy of order 0, which training has to beat.
  double entropy() const { return entropy_of(counts()); }

 private:
  static constexpr std::size_t ways = 4;  // so that equal bytes in a row do not wait for each other

  std::array<std::array<std::int64_t, 256>, ways> count_{};
};

}  // namespace longstride
