#include "kernels/attention/fast_path.h"

#include <algorithm>

#include "kernels/attention/sm90/general/geometry.h"
#include "kernels/attention/sm90/general/row_set_kinds.h"

namespace longstride::kernels {
namespace {

using namespace cuda::sm90;

// More than this is worth a word.
constexpr double most_work = 1.3;
// Larger keys have no band kernel (sm90/band).
constexpr std::int64_t widest_band_key = 64;

FastPath head_size(std::int64_t size) {
  const std::int64_t below = size / 8 * 8, above = below + 8;
  return {Slowness::head_size, size, below >= 16 ? std::min<std::int64_t>(below, 128) : 0,
          above <= 128 ? std::max<std::int64_t>(above, 16) : 0};
}

// Keys of more than 64 have no band kernel: reading and writing rows then costs more than few products do. Times the
// work, measured at windows of 1 to 193 and at columns of 64 and 128 rows (docs/notes/2026-11/kernels.md).
double work_of_window(std::int64_t window) {
  const std::int64_t tiles = 1 + (window + 62) / 64;  // of keys, for a tile of queries
  return 0.56 + 2.55 / static_cast<double>(tiles);
}
double work_of_column(std::int32_t rows) { return rows <= 64 ? 2.6 : rows <= 128 ? 1.32 : 1; }

FastPath narrow_window(std::int64_t window) {
  FastPath path{Slowness::narrow_window, window, 0, window, work_of_window(window)};
  while (work_of_window(path.above) > most_work) ++path.above;
  return path;
}

// A pass of one part that no context makes longer.
FastPath few_keys(const AttentionPlan& plan, const Pass& pass) {
  if (pass.parts != 1) return {};
  const Part& part = plan.parts_of(pass)[0];
  const std::int64_t window = part.low.back + 1;
  const std::int32_t rows = pass.queries.length;
  if (part.kind == PartKind::local && window < plan.n && work_of_window(window) > most_work)
    return narrow_window(window);
  if (part.kind == PartKind::column && work_of_column(rows) > most_work)
    return {Slowness::short_column, rows, 0, 0, work_of_column(rows)};
  return {};
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
  if (!hopper_takes(plan)) return {Slowness::geometry};
  if (key_size <= widest_band_key) return {};
  for (const Pass& pass : plan.passes)
    if (const FastPath path = few_keys(plan, pass); path.slowness != Slowness::none) return path;
  return {};
}

}  // namespace longstride::kernels
