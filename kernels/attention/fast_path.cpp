#include "kernels/attention/fast_path.h"

#include <algorithm>

#include "kernels/attention/sm90/general/geometry.h"
#include "kernels/attention/sm90/general/row_set_kinds.h"

namespace longstride::kernels {
namespace {

using namespace cuda::sm90;

FastPath head_size(std::int64_t size) {
  const std::int64_t below = size / 8 * 8, above = below + 8;
  return {Slowness::head_size, size, below >= 16 ? std::min<std::int64_t>(below, 128) : 0,
          above <= 128 ? std::max<std::int64_t>(above, 16) : 0};
}

}  // namespace

bool hopper_takes_head(std::int64_t size) { return size >= 16 && size <= 128 && size % 8 == 0; }

bool hopper_takes(const AttentionPlan& plan) {
  for (int number = 0; number < passes_in(plan); ++number) {
    Geometry geometry;
    if (!geometry_of(plan, number, geometry)) return false;
    RowSetKinds kinds;
    for (int p = 0; p < geometry.passes; ++p) {
      const PassGeometry& pass = geometry.pass[p];
      if (kinds.number_of(pass.queries) == RowSetKinds::most) return false;
      for (int i = 0; i < pass.parts; ++i)
        if (kinds.number_of(pass.part[i].keys) == RowSetKinds::most) return false;
    }
  }
  return true;
}

FastPath fast_path_of(const AttentionPlan& plan, std::int64_t key_size, std::int64_t value_size) {
  for (const std::int64_t size : {key_size, value_size})
    if (!hopper_takes_head(size)) return head_size(size);
  if (hopper_takes(plan)) return {};
  return {Slowness::geometry};
}

}  // namespace longstride::kernels
