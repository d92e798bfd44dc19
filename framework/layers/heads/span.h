// Where a span of the row begins and ends: scores = dropout(hidden) W^T + b, (positions, 2), and a choice among the
// positions of the row's first document by each column (Devlin et al. 2019). Position 0 stands for no span.
#pragma once
#include <string>

#include "framework/layers/heads/next_byte.h"

namespace longstride {

class SpanHead final : public Head {
 public:
  // Declares `name`.weight (2, width) and `name`.bias.
  SpanHead(ParameterSet& parameters, const std::string& name, const NextByteConfig& config)
      : scores_(parameters, name, config, nullptr) {}

  Dtype judged() const override { return Dtype::f32; }
  void losses(Context& ctx, const Tensor& hidden, const Asked& asked, const Tensor& losses,
              const Tensor& right = {}) const override;
  void loss_and_gradients(Context& ctx, const Tensor& hidden, const Asked& asked, double scale, const Tensor& losses,
                          const Tensor& dhidden) const override;
  Shape scores_shape(std::int64_t positions) const override { return {2, positions}; }
  void scores(Context& ctx, const Tensor& hidden, const Tensor& scores) const override;

 private:
  Tensor logits(Context& ctx, const Tensor& hidden, Scratch& scratch) const;  // (batch, positions, 2), exact

  NextByteHead scores_;
};

}  // namespace longstride
