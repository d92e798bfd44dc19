// The toy configurations of a kind of model, for tests that are written once for every kind.
#pragma once
#include <vector>

#include "tests/support/toy_model.h"

namespace longstride::test {

// static std::vector<NamedConfig<Config>> configs();              small ones, of every variant
// static std::vector<Config> recompute_policies(const Config&);   the same with every policy
template <class Config>
struct Toys;

}  // namespace longstride::test
