// The ids of a row that asks about its own bytes.
#pragma once
#include <algorithm>

#include "framework/core/errors.h"
#include "framework/core/objective.h"

namespace longstride {

// Writes `leading` ids [classify], the row's bytes, as many as there is room for, and padding; and whether it starts a
// stream. Returns the number of bytes.
inline std::int64_t write_tokens(const Batch& batch, std::int64_t row, const RowBytes& of, std::int64_t leading) {
  const std::int64_t seq = batch.tokens.size(1), count = std::min(of.length.value_or(seq), seq - leading);
  LONGSTRIDE_CHECK(batch.tokens.dtype() == Dtype::u16, "more ids than bytes in tokens of 8 bits");
  auto* const tokens = batch.tokens.as<std::uint16_t>() + row * seq;
  std::fill_n(tokens, leading, static_cast<std::uint16_t>(ids::classify));
  std::copy_n(of.bytes, count, tokens + leading);
  std::fill(tokens + leading + count, tokens + seq, static_cast<std::uint16_t>(ids::pad));
  if (batch.starts.given()) batch.starts.as<std::uint8_t>()[row] = of.starts ? 1 : 0;
  return count;
}

}  // namespace longstride
