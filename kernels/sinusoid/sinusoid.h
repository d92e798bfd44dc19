// Sines and cosines of whole numbers (Vaswani et al. 2017, section 3.5, in the order of Dai et al. 2019): row t is
//   y_t = [sin(t w_0), ..., sin(t w_{h-1}), cos(t w_0), ..., cos(t w_{h-1})],   w_i = 10000^(-2i / width), h = width /
//   2
// The angle is counted in turns and reduced in double to at most half a turn before it is rounded to y's type.
#pragma once
#include <cmath>
#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/base/op.h"

namespace longstride::kernels {

struct SinusoidArgs {
  Tensor y;  // (rows, width) contiguous, width even; f32 or f64 on the CPU, bf16, f16 or f32 on a GPU

  void check(Device device) const;
  Cost cost() const { return {WorkKind::embedding, bytes_of(y), 0}; }
};
LONGSTRIDE_OP(sinusoid, SinusoidArgs)

// w_i.
LONGSTRIDE_HOST_DEVICE inline double sinusoid_frequency(std::int64_t i, std::int64_t width) {
  return pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(width));
}
// Half turns of row t, in [-1, 1].
LONGSTRIDE_HOST_DEVICE inline double sinusoid_half_turns(std::int64_t t, double frequency) {
  constexpr double pi = 3.14159265358979323846;
  const double turns = static_cast<double>(t) * frequency / (2 * pi);
  return 2 * (turns - rint(turns));
}

}  // namespace longstride::kernels
