#include "datasets/objectives/next_byte.h"

#include <algorithm>
#include <numbers>

namespace longstride {

void NextByte::write(const Batch& batch, std::int64_t row, const RowBytes& of, const RowKey& /*key*/) const {
  write_row(batch, row, of.bytes, of.before, of.starts);
  const std::int64_t seq = batch.tokens.size(1), length = of.length.value_or(seq);
  if (batch.weights.given())  // padding is not asked
    std::fill_n(batch.weights.as<float>() + row * seq + length, seq - length, 0.0f);
}

std::vector<Figure> NextByte::figures(const Scored& scored) const {
  const double loss = scored.loss();
  Figure nats{"loss", loss, true, scored.error, "nats"}, bits{"bits per byte", loss / std::numbers::ln2};
  if (scored.error) bits.error = *scored.error / std::numbers::ln2;
  return {nats, bits};
}

}  // namespace longstride
