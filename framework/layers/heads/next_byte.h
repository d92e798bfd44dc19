// A choice at every position, the next byte of a decoder (Eq. 14):
//   logits = dropout(hidden) W_out^T + b, loss = -log softmax(logits)[target]
// With bands of a vocabulary (framework/layers/token_table.h) the loss is the sum of a first choice's and that of the
// target's band, and the logits of a band are (dropout(hidden) P) W^T + b where it has a projection P.
#pragma once
#include <optional>
#include <string>

#include "framework/layers/dropout.h"
#include "framework/layers/heads/head.h"
#include "framework/layers/token_table.h"
#include "framework/ops/cross_entropy.h"

namespace longstride {

struct NextByteConfig {
  TableForm table;  // not read where another is tied
  bool biased = false;
  double dropout = 0;
};

class NextByteHead final : public Head {
 public:
  // Declares the table `name`, unless the token table `tied` takes its place, and `name`.bias, or with bands
  // `name`.<b>.bias. With `tied` the first band has a projection of its own, `name`.projection.weight.
  NextByteHead(ParameterSet& parameters, const std::string& name, const NextByteConfig& config, const TokenTable* tied);
  NextByteHead(const NextByteHead&) = delete;  // it points to its own table
  NextByteHead& operator=(const NextByteHead&) = delete;

  void losses(Context& ctx, const Tensor& hidden, const Asked& asked, const Tensor& losses,
              const Tensor& right = {}) const override;
  void loss_and_gradients(Context& ctx, const Tensor& hidden, const Asked& asked, double scale, const Tensor& losses,
                          const Tensor& dhidden) const override;
  Shape scores_shape(std::int64_t positions) const override { return {positions, table_->vocabulary()}; }
  void scores(Context& ctx, const Tensor& hidden, const Tensor& scores) const override;
  // In the compute type or the exact one, with bands in the latter: (rows, vocabulary).
  void logits(Context& ctx, const Tensor& hidden, const Tensor& logits) const;
  // The gradients of what `dlogits`, (rows, vocabulary) of hidden's type, is the gradient of. Without bands.
  void backward_logits(Context& ctx, const Tensor& hidden, const Tensor& dlogits, const Tensor& dhidden) const;
  // Without bands.
  const Parameter& weight() const { return table_->front(); }
  const Dropout& dropout() const { return dropout_; }

 private:
  // A band's choice: its input, targets, weights and losses are in `scratch` where they differ from the head's.
  ops::CrossEntropy choice(Context& ctx, std::int64_t band, const Tensor& hidden, const Asked& asked,
                           const Tensor& losses, Scratch& scratch) const;
  Tensor narrow(Context& ctx, std::int64_t band, const Tensor& hidden, Scratch& scratch) const;
  // The gradients of a band's loss. The first overwrites dhidden, and others add to it.
  void choice_gradients(Context& ctx, ops::CrossEntropy args, std::int64_t band, const Tensor& hidden,
                        const Tensor& dhidden) const;
  // The logits of a choice, (rows, choices).
  Tensor choice_logits(Context& ctx, std::int64_t band, const Tensor& hidden, Dtype dtype, Scratch& scratch) const;
  Tensor bias(std::int64_t band, Tensor Parameter::*which) const {
    return biases_.empty() ? Tensor{} : biases_[static_cast<std::size_t>(band)]->*which;
  }
  const Parameter* projection(std::int64_t band) const {
    return band == 0 && projection_ != nullptr ? projection_ : table_->projection(band);
  }
  // A token table's gradient is final after the embedding's, with the rest of the first matrices.
  void complete(Context& ctx) const;

  std::optional<TokenTable> own_;  // none where another is tied
  const TokenTable* table_;
  Parameter* projection_ = nullptr;  // the first band's, where that is not the table's
  std::vector<Parameter*> biases_;   // one per band; empty without them
  Dropout dropout_;
};

}  // namespace longstride
