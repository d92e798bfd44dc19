// A choice of a row: logits = dropout(row) W^T + b, where row is the output at the row's first position, or the mean of
// its first document's positions.
#pragma once
#include <string>

#include "framework/layers/heads/next_byte.h"

namespace longstride {

enum class RowOf : std::uint8_t { first, mean };

class RowHead final : public Head {
 public:
  // Declares `name`.weight (answers, width) and `name`.bias.
  RowHead(ParameterSet& parameters, const std::string& name, const NextByteConfig& config, RowOf of)
      : of_(of), choice_(parameters, name, config, nullptr) {}

  void losses(Context& ctx, const Tensor& hidden, const Asked& asked, const Tensor& losses,
              const Tensor& right = {}) const override;
  void loss_and_gradients(Context& ctx, const Tensor& hidden, const Asked& asked, double scale, const Tensor& losses,
                          const Tensor& dhidden) const override;
  Shape scores_shape(std::int64_t /*positions*/) const override { return choice_.scores_shape(1); }
  void scores(Context& ctx, const Tensor& hidden, const Tensor& scores) const override;

 private:
  // (batch, 1, width)
  Tensor row_of(Context& ctx, const Tensor& hidden, Scratch& scratch) const;

  RowOf of_;
  NextByteHead choice_;
};

}  // namespace longstride
