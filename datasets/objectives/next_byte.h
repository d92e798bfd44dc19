// Every position predicts its byte from those before it; the score is in bits per byte.
#pragma once
#include "framework/core/objective.h"

namespace longstride {

class NextByte final : public Objective {
 public:
  const char* kind() const override { return "next_byte"; }
  void write(const Batch& batch, std::int64_t row, const RowBytes& of, const RowKey& key) const override;
  std::vector<Figure> figures(const Scored& scored) const override;
  std::size_t shown() const override { return 1; }
  double guess() const override { return 8; }
};

}  // namespace longstride
