// The settings of an encoder, as a recipe's `model:` and the data's geometry give them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/models/stack_config.h"

namespace longstride {

struct EncoderConfig : StackConfig {
  bool embedding_norm = false;  // a norm behind the embeddings, as BERT has
  bool types = false;           // embeddings of types of tokens (Batch::types), as BERT has of its two segments
  double contrast = 0;          // coefficient of the loss by which rows of hidden groups find them; 0: there is none

  EncoderConfig() {
    vocabulary = ids::all;
    direction = attention.direction = kernels::Direction::both;
    positions = Positions::learned;
    tied_output = output_bias = true;
  }
  const char* kind() const override { return "encoder"; }
  bool answers(std::string_view asked) const override;
  std::shared_ptr<StackConfig> clone() const override { return std::make_shared<EncoderConfig>(*this); }
  std::unique_ptr<Model> make_model() const override;
  void visit(SettingsVisitor& v) override;
  void check(SettingsChecker& check, std::int64_t sequence_ranks) const override;
  std::vector<std::string> toy_overrides() const override;
  std::shared_ptr<ModelConfig> with_documents(const DocumentForm& changed) const override;
  std::string reader_of_groups() const override {
    if (global.of_groups) return "model.global.of";
    return types && (!documents.separate || documents.padded) ? "model.types" : "";
  }

 private:
  bool check_global(SettingsChecker& check) const;  // false: it has reported a mistake
};

}  // namespace longstride
