// Rows to time a step on. Its time does not depend on their bytes, but on how much rows remember: see
// Model::warm_up_steps.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

#include "framework/core/objective.h"

namespace longstride {

// Random bytes, or tokens of a vocabulary, in every row, all of which continue a stream, in groups as long as
// sentences.
inline std::vector<std::uint8_t> random_rows(const BatchLayout& layout, const Objective& objective,
                                             std::int64_t vocabulary) {
  std::mt19937 generator(1);
  std::vector<std::uint8_t> block(layout.bytes());
  const Batch batch = layout.at(block.data());
  const bool wide = vocabulary > 256;
  const std::int64_t count = batch.tokens.size(1);
  std::vector<std::uint8_t> row(static_cast<std::size_t>(count * (wide ? 2 : 1)));
  std::vector<std::int64_t> ends = {0};
  while (ends.back() < count) ends.push_back(ends.back() + 100);
  for (std::int64_t r = 0; r < batch.rows(); ++r) {
    for (std::int64_t i = 0; i < count; ++i)
      kernels::write_id(row.data(), wide, i, static_cast<int>((generator() >> 16) * vocabulary >> 16));
    const RowBytes of{.bytes = row.data(), .starts = false, .groups = {ends, 0}, .wide = wide};
    objective.write_row_of(batch, r, of, {1, r});
  }
  return block;
}

}  // namespace longstride
