// Global rows in front of the positions of a sequence (Ainslie et al. 2020): which of them stand for a group of
// positions, such as a sentence, and what may be seen through them.
//
// A sequence has G global rows and n positions, of which the first `length` are its own. With groups, whose
// numbers from the first one's on are 0, 1, ..., the last c = min(groups, G) global rows are used, in the order of the
// groups: so what is seen remains an interval. Row G - c + k is that of group k, the last one that of all groups left.
// Without groups all are used.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

// Row bounds as attention takes them (kernels/attention/pattern/row_bounds.h): (rows, 1, queries) i32, contiguous.
struct GlobalBounds {
  Tensor begin = {}, end = {};

  bool given() const { return begin.given(); }
};

// Absent members restrict nothing.
struct GlobalSight {
  GlobalBounds rows_by_positions = {}, rows_by_rows = {};  // global rows that are seen by n positions, by G global rows
  GlobalBounds positions_by_rows = {};                     // positions that are seen by G global rows
  // (rows, n) and (rows, G) i32: equal where the position is of the global row's group, or of several that it has.
  Tensor group_of_position = {}, group_of_row = {};
};

struct GlobalRowsArgs {
  Tensor groups = {};      // (rows, n) i32, contiguous, never decreasing along a row's own positions; absent: none
  Tensor end = {};         // (rows, 1, n) i32, contiguous: the row's first element is `length`; absent: n
  bool own_group = false;  // a global row sees the positions of its groups, not all
  GlobalSight sight;       // written: positions_by_rows, and with groups the others

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(groups, sight.group_of_position), 0}; }
};
LONGSTRIDE_OP(global_rows, GlobalRowsArgs)

}  // namespace longstride::kernels
