#include "datasets/formats/pictures/resize.h"

#include <algorithm>
#include <cmath>

#include "framework/core/errors.h"

namespace longstride {
namespace {

constexpr int precision = 32 - 8 - 2;  // bits after the point of a weight; a sum of 8-bit pixels stays below 2^31

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

// One pixel of the output: a weighted sum of inputs first, first + 1, ..
struct Taps {
  std::int64_t first = 0;
  std::vector<std::int32_t> weights;
};

// From `size` inputs, those in [from, to), to `wanted` outputs.
std::vector<Taps> taps_of(std::int64_t size, double from, double to, std::int64_t wanted) {
  std::vector<Taps> all(static_cast<std::size_t>(wanted));
  const double scale = (to - from) / static_cast<double>(wanted), stretch = std::max(scale, 1.0);
  const double support = 2.0 * stretch;
  std::vector<double> weights;
  for (std::int64_t i = 0; i < wanted; ++i) {
    const double centre = from + (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<std::int64_t>(static_cast<std::int64_t>(centre - support + 0.5), 0);
    const auto end = std::min<std::int64_t>(static_cast<std::int64_t>(centre + support + 0.5), size);
    weights.clear();
    double sum = 0;
    for (std::int64_t x = first; x < end; ++x) {
      weights.push_back(cubic((static_cast<double>(x) - centre + 0.5) / stretch));
      sum += weights.back();
    }
    Taps& taps = all[static_cast<std::size_t>(i)];
    taps.first = first;
    for (const double weight : weights)
      taps.weights.push_back(static_cast<std::int32_t>(std::lround(weight / sum * (1 << precision))));
  }
  return all;
}

std::uint8_t rounded(std::int32_t sum) { return static_cast<std::uint8_t>(std::clamp(sum >> precision, 0, 255)); }

struct Rows {
  std::int64_t first = 0, end = 0;
};

// The rows `needed`, each to `columns` pixels.
Picture along_rows(const Picture& in, const Rows& needed, const Box& box, std::int64_t columns) {
  Picture out = {needed.end - needed.first, columns, in.channels, {}};
  out.pixels.resize(static_cast<std::size_t>(out.rows * columns * in.channels));
  const std::vector<Taps> all = taps_of(in.columns, box.left, box.right, columns);
  std::uint8_t* to = out.pixels.data();
  for (std::int64_t row = needed.first; row < needed.end; ++row)
    for (const Taps& taps : all) {
      const std::uint8_t* from = in.pixels.data() + (row * in.columns + taps.first) * in.channels;
      for (std::int64_t channel = 0; channel < in.channels; ++channel) {
        std::int32_t sum = 1 << (precision - 1);
        for (std::size_t k = 0; k < taps.weights.size(); ++k)
          sum += taps.weights[k] * from[static_cast<std::int64_t>(k) * in.channels + channel];
        *to++ = rounded(sum);
      }
    }
  return out;
}

// Every column to a pixel for each of `all`, which count rows from `first` on. Sums a row at a time, in the order of
// memory.
Picture along_columns(const Picture& in, std::int64_t first, const std::vector<Taps>& all) {
  const std::int64_t width = in.columns * in.channels;
  Picture out = {static_cast<std::int64_t>(all.size()), in.columns, in.channels, {}};
  out.pixels.resize(static_cast<std::size_t>(out.rows * width));
  std::vector<std::int32_t> sums(static_cast<std::size_t>(width));
  std::uint8_t* to = out.pixels.data();
  for (const Taps& taps : all) {
    std::fill(sums.begin(), sums.end(), 1 << (precision - 1));
    for (std::size_t k = 0; k < taps.weights.size(); ++k) {
      const std::uint8_t* from = in.pixels.data() + (taps.first - first + static_cast<std::int64_t>(k)) * width;
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += taps.weights[k] * from[i];
    }
    for (const std::int32_t sum : sums) *to++ = rounded(sum);
  }
  return out;
}

}  // namespace

Picture resize(const Picture& picture, const Box& box, std::int64_t rows, std::int64_t columns) {
  LONGSTRIDE_CHECK(rows > 0 && columns > 0 && box.left >= 0 && box.left < box.right &&
                       box.right <= static_cast<double>(picture.columns) && box.top >= 0 && box.top < box.bottom &&
                       box.bottom <= static_cast<double>(picture.rows),
                   "a part of {} to {} x {} to {} in a picture of {} x {}", box.left, box.right, box.top, box.bottom,
                   picture.columns, picture.rows);
  const std::vector<Taps> taps = taps_of(picture.rows, box.top, box.bottom, rows);
  Rows needed = {picture.rows, 0};  // the rows to scale; few of a tall picture's, if it is cropped
  for (const Taps& row : taps) {
    needed.first = std::min(needed.first, row.first);
    needed.end = std::max(needed.end, row.first + static_cast<std::int64_t>(row.weights.size()));
  }
  return along_columns(along_rows(picture, needed, box, columns), needed.first, taps);
}

}  // namespace longstride
