#include "datasets/objectives/next_byte.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "datasets/objectives/scored_choice.h"

namespace longstride {

void NextByte::write(const Batch& batch, std::int64_t row, const RowBytes& of, const RowKey& /*key*/) const {
  write_row(batch, row, of.ids(), of.before, of.starts);
  const std::int64_t seq = batch.tokens.size(1), length = of.length.value_or(seq);
  if (batch.weights.given())  // padding is not asked
    std::fill_n(batch.weights.as<float>() + row * seq + length, seq - length, 0.0f);
}

nlohmann::ordered_json NextByte::answers_of(const AnsweredRow& row) const {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  const kernels::Ids ids = kernels::ids_of(row.batch.tokens);
  for (std::int64_t p = 0; p < row.batch.tokens.size(1); ++p) {
    const Choice choice = choice_of(row.scores + p * row.answers, row.answers, ids[p]);
    out.push_back({{"position", row.first + p},
                   {"byte", ids[p]},
                   {"predicted", choice.best},
                   {"probability", choice.probability},
                   {"bits", choice.bits}});
  }
  return out;
}

std::vector<Figure> NextByte::figures(const Scored& scored) const {
  const double loss = scored.loss(), nats_per_bit = std::numbers::ln2 * scored.bytes_per_token;
  const Figure nats{"loss", loss, true, scored.error, scored.bytes_per_token == 1 ? "nats" : "nats per token"};
  if (nats_per_bit == 0) return {nats};
  Figure bits{"bits per byte", loss / nats_per_bit};
  if (scored.error) bits.error = *scored.error / nats_per_bit;
  return {nats, bits};
}

double NextByte::guess() const { return shown_of_loss(std::log(static_cast<double>(vocabulary()))).value; }

}  // namespace longstride
