// gelu(x) = x sigmoid(1.702 x), the approximation that Child et al. 2019 use, and its derivative.
#pragma once
#include "kernels/base/fast_math.h"

namespace longstride::kernels {

template <class T>
inline T gelu_of(T x) {
  return x * sigmoid_of(T(1.702) * x);
}

template <class T>
inline T gelu_slope_of(T x) {
  const T s = sigmoid_of(T(1.702) * x);
  return s + T(1.702) * x * s * (T(1) - s);
}

}  // namespace longstride::kernels
