#include "framework/models/registry.h"

#include "framework/models/decoder/config.h"
#include "framework/models/encoder/config.h"

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
      default_config<EncoderConfig>,
  };
  return kinds;
}

const OtherWords& models_of_kinds() {
  static const OtherWords words = [] {
    const auto like = [](const char* settings, const char* recipe) {
      return std::string("kind: decoder with ") + settings + ", as in recipes/survey/text-8min-" + recipe + ".yaml";
    };
    const std::string xl = like("model.distance and model.memory", "transformer-xl");
    const std::string compressive = like("model.distance and model.memory.compressed", "compressive");
    const std::string spans = like("model.distance.span", "adaptive"), dense = "kind: decoder with parts: [dense]";
    return OtherWords{{"transformer_xl", xl},
                      {"transfo_xl", xl},
                      {"compressive", compressive},
                      {"compressive_transformer", compressive},
                      {"adaptive_span", spans},
                      {"longformer", like("model.distance.window", "longformer")},
                      {"transformer", dense},
                      {"gpt", dense},
                      {"gpt2", dense}};
  }();
  return words;
}

}  // namespace longstride
