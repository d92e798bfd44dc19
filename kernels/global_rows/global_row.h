// The global rows of one sequence, for both devices.
#pragma once
#include <cstdint>

#include "kernels/attention/pattern/row_bounds.h"
#include "kernels/global_rows/global_rows.h"

namespace longstride::kernels {

struct GlobalRowsOf {
  const std::int32_t* groups = nullptr;  // its positions'; null: none
  std::int32_t length = 0, added = 0;    // its own positions, G
  bool own_group = false;

  LONGSTRIDE_HOST_DEVICE std::int32_t used() const {
    if (groups == nullptr) return added;
    const std::int32_t all = length > 0 ? groups[length - 1] - groups[0] + 1 : 1;
    return all < added ? all : added;
  }
  LONGSTRIDE_HOST_DEVICE std::int32_t first() const { return added - used(); }
  // The global row of a position's group; padding has none.
  LONGSTRIDE_HOST_DEVICE std::int32_t row_of(std::int32_t position) const {
    if (position >= length) return -1;
    const std::int32_t group = groups[position] - groups[0], last = used() - 1;
    return first() + (group < last ? group : last);
  }
  // The positions that a global row sees.
  LONGSTRIDE_HOST_DEVICE Interval positions(std::int32_t row) const {
    if (groups == nullptr || !own_group) return {0, length};
    const std::int32_t group = row - first();
    if (group < 0 || length == 0) return {0, 0};
    return {first_above(groups, length, groups[0] + group - 1),
            group == used() - 1 ? length : first_above(groups, length, groups[0] + group)};
  }
};

// Where the results of all sequences are.
struct GlobalRowsOut {
  std::int32_t n = 0, added = 0;
  bool own_group = false;
  const std::int32_t *groups = nullptr, *end = nullptr;
  std::int32_t *group_of_position = nullptr, *group_of_row = nullptr;
  std::int32_t *rows_by_positions[2] = {}, *rows_by_rows[2] = {}, *positions_by_rows[2] = {};

  GlobalRowsOut() = default;
  explicit GlobalRowsOut(const GlobalRowsArgs& args)
      : n(static_cast<std::int32_t>(args.groups.given() ? args.groups.size(1) : args.end.size(2))),
        added(static_cast<std::int32_t>(args.sight.positions_by_rows.begin.size(2))),
        own_group(args.own_group),
        groups(args.groups.as<const std::int32_t>()),
        end(args.end.as<const std::int32_t>()),
        group_of_position(args.sight.group_of_position.as<std::int32_t>()),
        group_of_row(args.sight.group_of_row.as<std::int32_t>()) {
    const auto place = [](std::int32_t*(&to)[2], const GlobalBounds& bounds) {
      to[0] = bounds.begin.as<std::int32_t>(), to[1] = bounds.end.as<std::int32_t>();
    };
    place(rows_by_positions, args.sight.rows_by_positions);
    place(rows_by_rows, args.sight.rows_by_rows);
    place(positions_by_rows, args.sight.positions_by_rows);
  }

  // Writes what belongs to position x of sequence `row`, or from n on to global row x - n.
  LONGSTRIDE_HOST_DEVICE void write(std::int64_t row, std::int32_t x) const {
    const GlobalRowsOf of{groups == nullptr ? nullptr : groups + row * n, end == nullptr ? n : end[row * n], added,
                          own_group};
    if (x >= n) {
      const std::int64_t at = row * added + (x - n);
      const Interval seen = of.positions(x - n);
      positions_by_rows[0][at] = seen.begin, positions_by_rows[1][at] = seen.end;
      if (groups == nullptr) return;
      rows_by_rows[0][at] = of.first(), rows_by_rows[1][at] = added;
      group_of_row[at] = x - n;
    } else if (groups != nullptr) {
      const std::int64_t at = row * n + x;
      rows_by_positions[0][at] = of.first(), rows_by_positions[1][at] = added;
      group_of_position[at] = of.row_of(x);
    }
  }
};

}  // namespace longstride::kernels
