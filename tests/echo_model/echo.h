// A toy model that remembers: every layer adds to the residual stream a product of what passed it `delay` positions
// earlier, and a row's first positions look back into the window that the row read the step before.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/layers/embedding.h"
#include "framework/layers/linear.h"
#include "framework/layers/residual_stream.h"
#include "framework/models/model_config.h"

namespace longstride {

struct EchoConfig : ModelConfig {
  std::int64_t layers = 1;
  std::int64_t width = 0;
  std::int64_t delay = 1;
  double dropout = 0;
  bool recompute = false;  // every layer is recomputed

  const char* kind() const override { return "echo"; }
  std::unique_ptr<Model> make_model() const override;
  void visit(SettingsVisitor& v) override;
  void check(SettingsChecker&, std::int64_t) const override {}
  bool remembers() const override { return true; }
  double activation_bytes() const override;
  std::string summary() const override;
};

// y_t = W x_{t - delay} + b; the x before the window are the row's memory (delay, width), the last ones of the window
// before. No gradient reaches that window.
class EchoBranch : public Branch {
 public:
  EchoBranch(ParameterSet& parameters, StateSet& states, const std::string& name, const EchoConfig& config);

  void forward(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape) const override;
  void backward(Context& ctx, const Tensor& dout, const Tensor& dnormed, Tape& tape) const override;
  Tensor output_bias_gradient() const override { return linear_.bias_gradient(); }
  const Parameter& gradients_final_from() const override { return linear_.weight(); }

  // Generation keeps the last `delay` inputs.
  std::unique_ptr<BranchCache> make_cache(Context& ctx, Scratch& memory, std::int64_t batch,
                                          std::int64_t positions) const override;
  void decode(Context& ctx, const Tensor& normed, const Tensor& out, BranchCache* cache,
              std::int64_t position) const override;

 private:
  // The x of the positions -delay to seq - 1: (batch, delay + seq, width).
  void join(Context& ctx, const Tensor& normed, const Tensor& joined) const;
  void remember(Context& ctx, const Tensor& joined) const;

  std::int64_t delay_;
  Linear linear_;
  const State& memory_;
};

class Echo : public Model, public Decodes {
 public:
  explicit Echo(const EchoConfig& config);

  ParameterSet& parameters() override { return parameters_; }
  std::int64_t context() const override { return config_.context; }
  std::int64_t vocabulary() const override { return 256; }
  const StateSet& states() const override { return states_; }

  void losses(Context& ctx, const Batch& batch, const Tensor& losses) const override;
  void loss_and_gradients(Context& ctx, const Batch& batch, double scale, const Tensor& losses) const override;
  SequenceCost cost(std::int64_t positions) const override;
  std::unique_ptr<DecodingState> begin_decoding(Context& ctx, std::int64_t batch,
                                                std::int64_t positions) const override;
  void decode(Context& ctx, DecodingState& state, std::int64_t position, const Tensor& previous,
              const Tensor& logits) const override;

 private:
  EchoConfig config_;
  ParameterSet parameters_;
  StateSet states_;
  std::unique_ptr<EmbeddingLayer> embedding_;
  std::unique_ptr<ResidualStream> stream_;
  Parameter* output_ = nullptr;
};

}  // namespace longstride
