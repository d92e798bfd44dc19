#include "kernels/attention/sm90/row_maps.h"

#include <algorithm>

#include "kernels/gpu/tensor_map.h"

namespace longstride::kernels::cuda::sm90 {
namespace {

CUtensorMap encoded(const Tensor& view, std::int64_t offsets, std::int64_t periods, std::int64_t period, BoxShape box,
                    std::int32_t columns) {
  return tensor_map(view.data(), view.dtype(),
                    {.size = {view.size(3), view.size(2), offsets, periods, view.size(0)},
                     .stride = {view.stride(2), view.stride(1), view.stride(1) * period, view.stride(0)},
                     .columns = columns,
                     .box = {1, box.offsets, box.periods, 1}});
}

}  // namespace

RowMaps row_maps(const Tensor& view, const RowSet& set, std::int32_t n, std::int32_t rows, std::int32_t columns) {
  const BoxShape box = box_of(set, rows);
  RowMaps maps;
  if (set.run >= set.period) {
    maps.complete = maps.longer = encoded(view, n, 1, n, box, columns);
    return maps;
  }
  const std::int32_t periods = std::max(n / set.period, 1);
  maps.complete = maps.longer = encoded(view, set.period, periods, set.period, box, columns);
  maps.rest = set.run == 1 ? n % set.period : 0;
  if (maps.rest > 0) maps.longer = encoded(view, maps.rest, n / set.period + 1, set.period, box, columns);
  return maps;
}

}  // namespace longstride::kernels::cuda::sm90
