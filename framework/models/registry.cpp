#include "framework/models/registry.h"

#include "framework/models/decoder/config.h"

namespace longstride {
namespace {

// The name that the kind decoder had when the Sparse Transformer was the only one. Recipes and runs that have it keep
// it, so their resolved recipes do not change.
std::unique_ptr<ModelConfig> sparse_transformer() {
  auto config = std::make_unique<DecoderConfig>();
  config->kind_name = "sparse_transformer";
  return config;
}

}  // namespace

std::vector<ModelKind>& model_kinds() {
  static std::vector<ModelKind> kinds = {
      default_config<DecoderConfig>,
      sparse_transformer,
  };
  return kinds;
}

}  // namespace longstride
