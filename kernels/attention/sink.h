// A sink: a logit per head that joins the softmax of every query and has no value, so a row that sees no key gets o = 0
// and lse = sink. The backward pass of attention is the same with these o and lse, and
//   dsink_h = -sum over rows of exp(sink_h - lse) D,  D = dout . o.
#pragma once
#include <cmath>

#include "kernels/base/host_device.h"

namespace longstride::kernels {

// factor: what the row's sum of values is multiplied by. Both without the sink before, and with it afterwards.
template <class T>
LONGSTRIDE_HOST_DEVICE inline void join_sink(T logit, T& factor, T& lse) {
  factor /= 1 + std::exp(logit - lse);
  lse = (lse > logit ? lse : logit) + std::log1p(std::exp(-std::abs(lse - logit)));
}

}  // namespace longstride::kernels
