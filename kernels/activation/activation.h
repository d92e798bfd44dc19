// y = f(x), the activation of a feed-forward layer, as a pass of its own:
//   sigmoid_gelu  x sigmoid(1.702 x)  (Child et al. 2019)
//   relu          max(x, 0)
//   gelu          x Phi(x), Phi the distribution of a standard normal number (Hendrycks and Gimpel 2016)
//   geglu         gelu(a) b for the two halves a and b of a row of x (Shazeer 2020)
// gemm fuses sigmoid_gelu and relu with the product before them; the others, and products without a bias, take this
// pass, which reads and writes a row once.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

enum class Activation : std::uint8_t { sigmoid_gelu, relu, gelu, geglu };

// How many elements of x make one of y.
constexpr std::int64_t inputs_of(Activation activation) { return activation == Activation::geglu ? 2 : 1; }

struct ActivationArgs {
  Activation activation = Activation::relu;
  Tensor x;  // (rows, inputs_of(activation) width), contiguous
  Tensor y;  // (rows, width), contiguous, of x's type; may be x, unless two elements make one

  void check(Device device) const;
  Cost cost() const { return {WorkKind::gelu, bytes_of(x, y), 0}; }
};
LONGSTRIDE_OP(activation, ActivationArgs)

// dx = dy f'(x).
struct ActivationBackwardArgs {
  Activation activation = Activation::relu;
  Tensor dy;  // (rows, width), contiguous
  Tensor x;   // (rows, inputs_of(activation) width), contiguous, of dy's type; of relu, its output will do
  Tensor dx;  // like x; may be dy, unless two elements make one

  void check(Device device) const;
  Cost cost() const { return {WorkKind::gelu, bytes_of(dy, x, dx), 0}; }
};
LONGSTRIDE_OP(activation_backward, ActivationBackwardArgs)

}  // namespace longstride::kernels
