// A second, deliberately tiny model: every byte is predicted from the one before it, by feed-forward branches along a
// residual stream. It shows what a model needs to take part in everything (docs/develop/adding_a_model.md).
#pragma once
#include <memory>
#include <string>

#include "framework/layers/embedding.h"
#include "framework/layers/residual_stream.h"
#include "framework/models/model_config.h"

namespace longstride {

struct BigramConfig : ModelConfig {
  std::int64_t layers = 1;
  std::int64_t width = 0;
  double dropout = 0;
  bool recompute = false;  // every layer is recomputed

  std::int64_t inner_width() const { return 2 * width; }

  const char* kind() const override { return "bigram"; }
  std::unique_ptr<Model> make_model() const override;
  void visit(SettingsVisitor& v) override;
  void check(SettingsChecker& check, std::int64_t sequence_ranks) const override;
  double activation_bytes() const override;
  std::string summary() const override;
};

class Bigram : public Model, public Decodes {
 public:
  explicit Bigram(const BigramConfig& config);

  ParameterSet& parameters() override { return parameters_; }
  std::int64_t context() const override { return config_.context; }
  std::int64_t vocabulary() const override { return 256; }

  void losses(Context& ctx, const Batch& batch, const Tensor& losses) const override;
  void loss_and_gradients(Context& ctx, const Batch& batch, double scale, const Tensor& losses) const override;
  SequenceCost cost(std::int64_t positions) const override;
  std::unique_ptr<DecodingState> begin_decoding(Context& ctx, std::int64_t batch,
                                                std::int64_t positions) const override;
  void decode(Context& ctx, DecodingState& state, std::int64_t position, const Tensor& previous,
              const Tensor& logits) const override;

 private:
  BigramConfig config_;
  ParameterSet parameters_;
  std::unique_ptr<EmbeddingLayer> embedding_;
  std::unique_ptr<ResidualStream> stream_;
  Parameter* output_ = nullptr;
};

}  // namespace longstride
