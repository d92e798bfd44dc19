#include "kernels/attention/fast_path.h"

#include <algorithm>
#include <span>

#include "kernels/attention/choice.h"
#include "kernels/attention/sm90/band/band_shape.h"

namespace longstride::kernels {
namespace {

using namespace cuda::sm90;

// More than this is worth a word.
constexpr double most_work = 1.3;

FastPath head_size(std::int64_t size) {
  const std::int64_t below = size / 8 * 8, above = below + 8;
  return {Slowness::head_size, size, below >= smallest_sm90_head ? std::min(below, largest_sm90_head) : 0,
          above <= largest_sm90_head ? std::max(above, smallest_sm90_head) : 0};
}

bool is_small(std::int64_t key_size, std::int64_t value_size) { return key_size <= 32 && value_size <= 32; }

// Keys of more than 64 have no backward kernel for bands: reading and writing rows then costs more than few products
// do. Times the work, as measured in both directions (docs/notes/2026-11/kernels.md).
double work_of_window(std::int64_t window) {
  const std::int64_t tiles = 1 + (window + 62) / 64;  // key tiles per query tile
  return 0.44 + 2.17 / static_cast<double>(tiles);
}

// Columns of one tile, where rows and the beginning of a task take most of the time. Measured at 8 to 64 rows and keys
// of 16 to 128 (docs/notes/2026-11/performance.md).
constexpr std::int64_t tile_rows = 64;
double work_of_column(std::int64_t rows, std::int64_t key_size, std::int64_t value_size) {
  if (rows > tile_rows) return 1;
  if (key_size > widest_band_key) return 1.6;
  const double part = static_cast<double>(rows) / tile_rows, square = part * part;
  if (value_size > widest_band_key) return 0.9 + 0.53 * square;
  return is_small(key_size, value_size) ? 1.18 + 0.3 * square : 1.25 + 0.58 * square;
}

FastPath narrow_window(std::int64_t window) {
  FastPath path{Slowness::narrow_window, window, 0, window, work_of_window(window)};
  while (work_of_window(path.above) > most_work) ++path.above;
  return path;
}

// A fixed pattern whose blocks and summaries share a softmax. A query tile costs as much as several pairs of tiles of
// 64 by itself, and more where few summary rows make few and long tasks, or are read in pieces (general/tile_pieces.h).
// Times the work, measured at strides of 53 to 1,014 and summaries of 2 to 120, above 64 at wide ones alone
// (docs/notes/2026-11/performance.md); 1: not known to be more.
double work_of_summary(std::int32_t stride, std::int32_t width, std::int64_t n, bool small) {
  const double l = stride, pairs = 1.5 + l / 128 + static_cast<double>(n) * width / (128 * l);  // per query tile
  const bool in_pieces = 128 % width != 0 && width % 128 != 0;
  if (small) return in_pieces ? 0.53 + 8.1 / pairs : 1;
  return 0.8 + (in_pieces ? 11.5 : 5.3) / pairs;
}

// The nearest wider summary that is fast and no piece; where there is none, the context is too short for any.
FastPath narrow_summary(const AttentionPlan& plan, const Pass& pass, bool small) {
  const std::span<const Part> parts = plan.parts_of(pass);
  if (parts.size() != 2 || parts[1].kind != PartKind::fixed_summary) return {};
  const std::int32_t stride = parts[1].keys.period, width = parts[1].keys.run;
  const double work = work_of_summary(stride, width, plan.n, small);
  for (std::int32_t above = (width / 8 + 1) * 8; work > most_work && above < stride; above += 8)
    if (work_of_summary(stride, above, plan.n, small) <= most_work)
      return {Slowness::narrow_summary, width, 0, above, work};
  return {};
}

// Rows of 48 bytes that are far apart. Measured at columns of 182 positions.
FastPath column_head(const AttentionPlan& plan, const Pass& pass, std::int64_t key_size, std::int64_t value_size) {
  constexpr std::int64_t slow = 24;
  const bool has_columns = pass.parts == 1 && plan.parts_of(pass)[0].kind == PartKind::column;
  if (!has_columns || key_size != slow || value_size != slow) return {};
  return {Slowness::column_head, slow, 0, 32, 1.4};
}

// A pass of one part whose queries see few keys, although the context has more.
FastPath few_keys(const AttentionPlan& plan, const Pass& pass, std::int64_t key_size, std::int64_t value_size) {
  if (pass.parts != 1) return {};
  const Part& part = plan.parts_of(pass)[0];
  const std::int64_t window = part.low.back + 1;
  if (part.kind == PartKind::local && key_size > widest_band_key && window < plan.n &&
      work_of_window(window) > most_work)
    return narrow_window(window);
  if (part.kind != PartKind::column) return {};
  const std::int32_t rows = pass.queries.length;
  const double work = work_of_column(rows, key_size, value_size);
  const std::int64_t stride = (plan.n - 1) / tile_rows;  // the widest whose columns are longer
  return work > most_work && stride > 0 ? FastPath{Slowness::short_column, rows, stride, 0, work} : FastPath{};
}

}  // namespace

FastPath fast_path_of(const AttentionPlan& plan, std::int64_t key_size, std::int64_t value_size) {
  for (const std::int64_t size : {key_size, value_size})
    if (!sm90_takes_head(size)) return head_size(size);
  if (has_first_keys(plan)) return {};  // no setting makes them faster
  if (choose_forward({&plan, 1, key_size, value_size}).family == AttentionFamily::portable) return {Slowness::geometry};
  for (const Pass& pass : plan.passes)
    for (const FastPath& path :
         {few_keys(plan, pass, key_size, value_size), narrow_summary(plan, pass, is_small(key_size, value_size)),
          column_head(plan, pass, key_size, value_size)})
      if (path.slowness != Slowness::none) return path;
  return {};
}

}  // namespace longstride::kernels
