// The properties of every model, on the second one.
#include "tests/second_model/bigram.h"
#include "tests/support/model_properties.h"

namespace longstride::test {

template <>
struct Toys<BigramConfig> {
  static std::vector<NamedConfig<BigramConfig>> configs() {
    BigramConfig config;
    config.context = 13;
    config.width = 8;
    BigramConfig deep = config;
    deep.layers = 3;
    return {{"shallow", config}, {"deep", deep}};
  }
  static std::vector<BigramConfig> recompute_policies(const BigramConfig& config) {
    std::vector<BigramConfig> all(2, config);
    all[1].recompute = true;
    return all;
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Bigram, ModelProperties, BigramConfig);

}  // namespace longstride::test
