#include "kernels/base/tensor_checks.h"
#include "kernels/global_rows/global_row.h"

namespace longstride::kernels {
namespace {

void check_numbers(const Tensor& t, const Shape& shape, const char* name) {
  LONGSTRIDE_CHECK(t.given() && t.shape() == shape, "{} is {}, but must be {}", name, t.shape().text(), shape.text());
  check_vector(t, shape.count(), Dtype::i32, name);
}

void check_bounds(const GlobalBounds& bounds, const Shape& shape, const char* name) {
  check_numbers(bounds.begin, shape, name);
  check_numbers(bounds.end, shape, name);
}

}  // namespace

void GlobalRowsArgs::check(Device) const {
  LONGSTRIDE_CHECK(groups.given() || end.given(), "global rows with neither groups nor lengths");
  LONGSTRIDE_CHECK(sight.positions_by_rows.begin.rank() == 3, "bounds of global rows are {}",
                   sight.positions_by_rows.begin.shape().text());
  const std::int64_t rows = groups.given() ? groups.size(0) : end.size(0),
                     n = groups.given() ? groups.size(1) : end.size(2), added = sight.positions_by_rows.begin.size(2);
  if (end.given()) check_numbers(end, {rows, 1, n}, "the lengths of rows");
  check_bounds(sight.positions_by_rows, {rows, 1, added}, "positions seen by global rows");
  if (!groups.given()) return;
  check_numbers(groups, {rows, n}, "the groups of positions");
  check_bounds(sight.rows_by_positions, {rows, 1, n}, "global rows seen by positions");
  check_bounds(sight.rows_by_rows, {rows, 1, added}, "global rows seen by global rows");
  check_numbers(sight.group_of_position, {rows, n}, "the global rows of positions");
  check_numbers(sight.group_of_row, {rows, added}, "the global rows themselves");
}

namespace cpu {

void global_rows(const GlobalRowsArgs& args, const Launch&) {
  const GlobalRowsOut out(args);
  const std::int64_t rows = args.sight.positions_by_rows.begin.size(0);
#pragma omp parallel for schedule(static) if (rows > 1)
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int32_t x = 0; x < out.n + out.added; ++x) out.write(row, x);
}

}  // namespace cpu
}  // namespace longstride::kernels
