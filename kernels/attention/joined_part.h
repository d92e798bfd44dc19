// The gradients of keys that two parts of a pass share.
#pragma once
#include "kernels/attention/pattern/plan.h"

namespace longstride::kernels {

// Whether `rest` allows of its keys what lies just below `window`, a part of the same pass with every position as a
// key: then the queries that may attend to one of its keys are, over both parts, one interval.
constexpr bool continues(const Part& rest, const Part& window) {
  return window.keys.run >= window.keys.period && window.high == Limit{} && rest.high.block == window.low.block &&
         rest.high.back == window.low.back + 1;
}

// `rest` with the window's queries too. The gradients of its keys are so one sum in f32, rounded once, that replaces
// what the window alone gave them.
constexpr Part joined(Part rest, const Part& window) {
  rest.high = window.high;
  return rest;
}

}  // namespace longstride::kernels
