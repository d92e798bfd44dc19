// Rows to time a step on. Its time does not depend on their bytes, but on how much rows remember: see
// Model::warm_up_steps.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

#include "framework/core/objective.h"

namespace longstride {

// Random bytes in every row, all of which continue a stream.
inline std::vector<std::uint8_t> random_rows(const BatchLayout& layout, const Objective& objective) {
  std::mt19937 generator(1);
  std::vector<std::uint8_t> block(layout.bytes());
  const Batch batch = layout.at(block.data());
  std::vector<std::uint8_t> row(static_cast<std::size_t>(batch.tokens.size(1)));
  for (std::int64_t r = 0; r < batch.rows(); ++r) {
    for (std::uint8_t& byte : row) byte = static_cast<std::uint8_t>(generator() >> 24);
    objective.write(batch, r, {row.data(), 0, false}, {1, r});
  }
  return block;
}

}  // namespace longstride
