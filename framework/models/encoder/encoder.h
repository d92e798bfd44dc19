// An encoder: every position reads its own token, and mixers look in both directions (Devlin et al. 2019). A head
// answers the recipe's objective.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/layers/contrast.h"
#include "framework/models/encoder/config.h"
#include "framework/models/stack_model.h"

namespace longstride {

class Encoder final : public StackModel, public Predicts, public Judges {
 public:
  explicit Encoder(const EncoderConfig& config);
  // The kinds of objective that it has a head for.
  static std::vector<std::string_view> answered();

  Shape scores_shape(std::int64_t positions) const override { return head().scores_shape(positions); }
  Dtype judged() const override { return head().judged(); }
  void predict(Context& ctx, const Batch& batch, const Tensor& scores) const override;
  void judge(Context& ctx, const Batch& batch, const Tensor& losses, const Tensor& right) const override;
  std::vector<std::string> auxiliary_losses() const override;

 private:
  void add_losses(Context& ctx, const Batch& batch, const Tensor& rows, const Tensor& d) const override;

  std::unique_ptr<Contrast> contrast_;  // null: none
};

}  // namespace longstride
