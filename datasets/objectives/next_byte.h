// Every position predicts its byte, or token, from those before it; the score is in bits per byte, of tokens in nats
// per token and, where the bytes of their text are known, in bits per byte of that.
#pragma once
#include "framework/core/objective.h"

namespace longstride {

class NextByte final : public Objective {
 public:
  const char* kind() const override { return "next_byte"; }
  void write(const Batch& batch, std::int64_t row, const RowBytes& of, const RowKey& key) const override;
  std::vector<Figure> figures(const Scored& scored) const override;
  std::size_t shown() const override { return 1; }
  double guess() const override;
  bool reads_tokens() const override { return true; }
  nlohmann::ordered_json answers_of(const AnsweredRow& row) const override;
};

}  // namespace longstride
