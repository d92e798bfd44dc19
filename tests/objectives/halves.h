// An objective with one loss per row, and a tiny model that answers it: in which half of the alphabet a row's last byte
// is. Rows that end in z are not asked.
#pragma once
#include <memory>
#include <string>

#include "framework/core/objective.h"
#include "framework/layers/embedding.h"
#include "framework/models/model_config.h"

namespace longstride {

class Halves final : public Objective {
 public:
  const char* kind() const override { return "halves"; }
  void visit(SettingsVisitor& v) override;
  BatchFields fields() const override { return {.targets = true, .weights = true, .starts = true, .asked = 1}; }
  void write(const Batch& batch, std::int64_t row, const RowBytes& of, const RowKey& key) const override;
  std::size_t sums() const override { return 2; }
  void add(const Answered& one, double* sums) const override;
  std::vector<Figure> figures(const Scored& scored) const override;
  double guess() const override;

 private:
  double noise_ = 0;  // share of the rows whose answer is the wrong one
};

struct ClassifierConfig : ModelConfig {
  std::int64_t width = 8;

  const char* kind() const override { return "classifier"; }
  bool answers(std::string_view asked) const override { return asked == "halves"; }
  std::unique_ptr<Model> make_model() const override;
  void visit(SettingsVisitor& v) override { v.field("width", width, Need::optional, ranges::width); }
  void check(SettingsChecker& /*check*/, std::int64_t /*sequence_ranks*/) const override {}
  double activation_bytes() const override { return static_cast<double>(width) * sizeof(float); }
  std::string summary() const override { return "width " + std::to_string(width); }
};

// Reads the embedding of a row's last byte.
class Classifier : public Model {
 public:
  explicit Classifier(const ClassifierConfig& config);

  ParameterSet& parameters() override { return parameters_; }
  std::int64_t context() const override { return config_.context; }
  std::int64_t vocabulary() const override { return 256; }
  BatchFields fields() const override { return config_.objective->fields(); }
  void losses(Context& ctx, const Batch& batch, const Tensor& losses) const override;
  void loss_and_gradients(Context& ctx, const Batch& batch, double scale, const Tensor& losses) const override;
  SequenceCost cost(std::int64_t positions) const override;

 private:
  // The embedding of the last byte, (rows, 1, width), of `all`.
  void read(Context& ctx, const Batch& batch, const Tensor& all, const Tensor& last) const;

  ClassifierConfig config_;
  ParameterSet parameters_;
  std::unique_ptr<EmbeddingLayer> embedding_;
  Parameter* output_;
};

}  // namespace longstride
