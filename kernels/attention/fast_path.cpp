#include "kernels/attention/fast_path.h"

#include "kernels/attention/sm90/general/geometry.h"
#include "kernels/attention/sm90/general/row_set_kinds.h"

namespace longstride::kernels {
namespace {

using namespace cuda::sm90;

// More than this is worth a word.
constexpr double most_work = 1.3;

bool is_summary(const RowSet& keys) { return keys.run < keys.period && keys.run > 1; }

// TMA reads no summary row of an incomplete period (row_maps.h).
bool sees_incomplete_period(const Part& part, std::int32_t n) {
  const RowSet& keys = part.keys;
  return is_summary(keys) && part.interval(keys, n - 1).end > n / keys.period * keys.run;
}

// Rows that are read for each key of summaries of `width` in every `period`; 0: none can be.
double work_of(std::int32_t width, std::int32_t period) {
  return boxed({0, width, period, 0}).run / static_cast<double>(width);
}
bool is_fast(std::int32_t width, std::int32_t period) {
  const double work = work_of(width, period);
  return work > 0 && work <= most_work;
}

FastPath head_size(std::int64_t size) {
  const std::int64_t below = size / 8 * 8, above = below + 8;
  return {Slowness::head_size, size, below >= 16 ? std::min<std::int64_t>(below, 128) : 0,
          above <= 128 ? std::max<std::int64_t>(above, 16) : 0};
}

FastPath summary_width(std::int32_t width, std::int32_t period) {
  FastPath path{Slowness::summary_width, width, width - 1, width + 1, work_of(width, period)};
  while (path.below > 0 && !is_fast(static_cast<std::int32_t>(path.below), period)) --path.below;
  while (path.above < period && !is_fast(static_cast<std::int32_t>(path.above), period)) ++path.above;
  return path;
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
        if (kinds.number_of(pass.part[i].keys) == RowSetKinds::most || sees_incomplete_period(pass.part[i], plan.n))
          return false;
    }
  }
  return true;
}

FastPath fast_path_of(const AttentionPlan& plan, std::int64_t key_size, std::int64_t value_size) {
  for (const std::int64_t size : {key_size, value_size})
    if (!hopper_takes_head(size)) return head_size(size);
  for (const Part& part : plan.parts)
    if (is_summary(part.keys) && !is_fast(part.keys.run, part.keys.period))
      return summary_width(part.keys.run, part.keys.period);
  if (hopper_takes(plan)) return {};
  for (const Part& part : plan.parts)
    if (sees_incomplete_period(part, plan.n)) {
      const std::int32_t below = plan.n / part.keys.period * part.keys.period;
      return {Slowness::incomplete_period, plan.n, below, below + part.keys.period};
    }
  return {Slowness::geometry};
}

}  // namespace longstride::kernels
