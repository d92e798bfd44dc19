// A term of attention's loops that adds nothing to a score. A term is one struct: the keys that a query sees, what it
// adds to a score and by what it weights its exponential, what it takes from the score's gradient, and its own
// gradients.
#pragma once
#include "kernels/attention/pattern/plan.h"

namespace longstride::kernels {

// One class of one part of a plan.
template <class T>
struct NoTerm {
  static constexpr bool given = false;  // the loops leave out what a term does
  const Part& part;
  RowSet keys;

  Interval interval(std::int32_t position) const { return part.interval(keys, position); }
  const T* weights_of(std::int32_t, std::int64_t) const { return nullptr; }
  const T* content_bias() const { return nullptr; }
};

}  // namespace longstride::kernels
