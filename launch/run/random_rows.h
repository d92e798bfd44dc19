// Rows to time a step on. Its time does not depend on their bytes, but on how much rows remember: see
// Model::warm_up_steps.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

#include "framework/core/batch.h"

namespace longstride {

// Random bytes in every row, all of which continue a stream.
inline std::vector<std::uint8_t> random_rows(const BatchLayout& layout) {
  std::mt19937 generator(1);
  std::vector<std::uint8_t> block(layout.bytes());
  const Batch batch = layout.at(block.data());
  std::vector<std::uint8_t> row(static_cast<std::size_t>(batch.tokens.size(1)));
  for (std::int64_t r = 0; r < batch.rows(); ++r) {
    for (std::uint8_t& byte : row) byte = static_cast<std::uint8_t>(generator() >> 24);
    write_row(batch, r, row.data(), 0, false);
  }
  return block;
}

}  // namespace longstride
