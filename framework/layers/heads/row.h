// A choice of a row, or answers that hold each by itself: logits = dropout(row) W^T + b, where row is the output at the
// row's first position, or the mean of its first document's positions.
#pragma once
#include <string>

#include "framework/layers/heads/next_byte.h"

namespace longstride {

enum class RowOf : std::uint8_t { first, mean };
enum class RowAnswers : std::uint8_t { one, each };

class RowHead final : public Head {
 public:
  // Declares `name`.weight (answers, width) and `name`.bias.
  RowHead(ParameterSet& parameters, const std::string& name, const NextByteConfig& config, RowOf of,
          RowAnswers answers = RowAnswers::one)
      : of_(of), answers_(answers), choice_(parameters, name, config, nullptr) {}

  void losses(Context& ctx, const Tensor& hidden, const Asked& asked, const Tensor& losses,
              const Tensor& right = {}) const override;
  void loss_and_gradients(Context& ctx, const Tensor& hidden, const Asked& asked, double scale, const Tensor& losses,
                          const Tensor& dhidden) const override;
  // (1, answers), or (answers, 1) of answers by themselves
  Shape scores_shape(std::int64_t /*positions*/) const override {
    const Shape one = choice_.scores_shape(1);
    return answers_ == RowAnswers::one ? one : Shape{one[1], 1};
  }
  void scores(Context& ctx, const Tensor& hidden, const Tensor& scores) const override;

 private:
  // (batch, 1, width)
  Tensor row_of(Context& ctx, const Tensor& hidden, Scratch& scratch) const;

  // Losses of answers by themselves, and what dlogits, if given, is the gradient of.
  void each_loss(Context& ctx, const Tensor& logits, const Asked& asked, const Tensor& losses, const Tensor& right,
                 double scale, const Tensor& dlogits) const;

  RowOf of_;
  RowAnswers answers_;
  NextByteHead choice_;
};

}  // namespace longstride
