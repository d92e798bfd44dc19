// The second half of a reduction over row chunks: totals += the rows of partials (chunks, n), in a fixed order. The
// first `split` columns go to total, the others to rest.
#pragma once
#include <cstdint>

#include "kernels/base/view.h"

namespace longstride::kernels::cuda {

struct PartialSums {
  const float* partials;
  std::int64_t chunks, n;
  float* total;
  std::int64_t split;  // n when there is no rest
  float* rest = nullptr;
};

void add_partials(const PartialSums& sums, const Launch& launch);

}  // namespace longstride::kernels::cuda
