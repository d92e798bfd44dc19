// y = gelu(x) = x sigmoid(1.702 x), and dx = dy gelu'(x). Contiguous arrays of one type.
#pragma once
#include "kernels/base/view.h"

namespace longstride::kernels {

struct GeluArgs {
  View x;
  View y;  // may be x
};

struct GeluBackwardArgs {
  View dy;
  View x;
  View dx;  // may be dy
};

namespace cpu {
void gelu(const GeluArgs&, const Launch&);
void gelu_backward(const GeluBackwardArgs&, const Launch&);
}  // namespace cpu
namespace cuda {
void gelu(const GeluArgs&, const Launch&);
void gelu_backward(const GeluBackwardArgs&, const Launch&);
}  // namespace cuda

}  // namespace longstride::kernels
