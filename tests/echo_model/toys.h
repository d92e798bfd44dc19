// Small echoes for tests that are written once for every kind of model.
#pragma once
#include "tests/echo_model/echo.h"
#include "tests/support/toys.h"

namespace longstride::test {

template <>
struct Toys<EchoConfig> {
  static std::vector<NamedConfig<EchoConfig>> configs() {
    EchoConfig config;
    config.context = 13;
    config.width = 8;
    EchoConfig deep = config;
    deep.layers = 3;
    deep.delay = 4;
    EchoConfig late = config;
    late.delay = 20;  // more than a window
    return {{"shallow", config}, {"deep", deep}, {"late", late}};
  }
  static std::vector<EchoConfig> recompute_policies(const EchoConfig& config) {
    std::vector<EchoConfig> all(2, config);
    all[1].recompute = true;
    return all;
  }
  static EchoConfig without_dropout(EchoConfig config) {
    config.dropout = 0;
    return config;
  }
};

}  // namespace longstride::test
