// Standard normal numbers of tests, drawn once per process: that takes longer than most of what is computed from them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "kernels/base/philox.h"

namespace longstride::testing {

// At least the first `count` numbers that Philox gives with this key and step.
inline const std::vector<double>& drawn_normals(std::uint64_t key, std::uint32_t step, std::size_t count) {
  static std::map<std::pair<std::uint64_t, std::uint32_t>, std::vector<double>> streams;
  std::vector<double>& drawn = streams[{key, step}];
  const std::size_t before = drawn.size();
  const std::uint32_t domain = kernels::domain_of(kernels::Purpose::test, 0);
  if (before < count) drawn.resize(count);
#pragma omp parallel for
  for (std::size_t i = before; i < count; ++i) drawn[i] = kernels::normal_of(kernels::philox(key, i, step, domain));
  return drawn;
}

}  // namespace longstride::testing
