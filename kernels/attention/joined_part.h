// The gradients of keys that two parts of a pass share.
#pragma once
#include "kernels/attention/pattern/plan.h"

namespace longstride::kernels {

// True if `rest` allows those of its keys that lie just below `window`, a part of the same pass with every position as
// a key. Then the queries that may attend to one of its keys form one interval over both parts.
constexpr bool continues(const Part& rest, const Part& window) {
  return window.keys.run >= window.keys.period && window.high == Limit{} && rest.high.block == window.low.block &&
         rest.high.back == window.low.back + 1;
}

// `rest` extended by the window's queries. The gradient of each of its keys is then one f32 sum, rounded once, which
// replaces the gradient from the window alone.
constexpr Part joined(Part rest, const Part& window) {
  rest.high = window.high;
  return rest;
}

}  // namespace longstride::kernels
