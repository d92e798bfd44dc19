// The second half of a reduction over row chunks: each total (columns) += its rows of partials (chunks, totals,
// columns), in a fixed order.
#pragma once
#include <cstdint>

#include "kernels/base/op.h"

namespace longstride::kernels::cuda {

struct PartialSums {
  static constexpr int most_totals = 3;
  const float* partials;
  std::int64_t chunks, columns;
  int totals = 1;
  float* total[most_totals] = {};

  PartialSums(const float* from, std::int64_t chunk_count, std::int64_t column_count, float* only)
      : partials(from), chunks(chunk_count), columns(column_count), total{only} {}
  void add(float* another) { total[totals++] = another; }
};

void add_partials(const PartialSums& sums, const Launch& launch);

}  // namespace longstride::kernels::cuda
