#include "framework/models/registry.h"

#include "framework/models/sparse_transformer/config.h"

namespace longstride {

std::vector<ModelKind>& model_kinds() {
  static std::vector<ModelKind> kinds = {
      default_config<SparseTransformerConfig>,
  };
  return kinds;
}

}  // namespace longstride
