// Streams that differ only in their beginning are read through the same tensor maps.
#pragma once
#include "kernels/attention/pattern/plan.h"

namespace longstride::kernels::cuda::sm90 {

class RowSetKinds {
 public:
  static constexpr int most = 4;  // natural order, residue classes, and summary rows of two widths

  static bool same(const RowSet& a, const RowSet& b) {
    const bool natural = a.run >= a.period;
    return natural == (b.run >= b.period) && (natural || (a.run == b.run && a.period == b.period));
  }
  // The number of this row set's kind, or `most` if there is no room for it.
  int number_of(const RowSet& set) {
    int i = 0;
    while (i < count_ && !same(kinds_[i], set)) ++i;
    if (i == count_ && i < most) kinds_[count_++] = set;
    return i;
  }
  int count() const { return count_; }
  const RowSet& operator[](int i) const { return kinds_[i]; }

 private:
  int count_ = 0;
  RowSet kinds_[most];
};

}  // namespace longstride::kernels::cuda::sm90
