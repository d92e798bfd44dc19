// What Muon (Jordan et al. 2024) does besides matrix products: the momentum before them, the polynomial between them,
// and the weights after them. Like adam.h's, the scalars are in device memory, and a step whose gradient is not finite
// changes nothing.
#pragma once
#include "kernels/adam.h"

namespace longstride::kernels {

// With g = clip_coefficient * gradient:  m = momentum m + (1 - momentum) g,  update = momentum m + (1 - momentum) g.
// When scalars->finite is 0, m stays as it is and update = 0.
struct NesterovArgs {
  View gradient;  // (count); all contiguous and of one type, f32 on a GPU
  View m;
  View update;
  double momentum = 0;
  const OptimizerScalars* scalars = nullptr;
};

// y = x / (sqrt(squares) + epsilon)
struct NormaliseArgs {
  View x;        // (count), f32 on a GPU
  View squares;  // (1) f64
  View y;        // (count), on the CPU of x's type
  double epsilon = 0;
};

// square = c0 I + c1 x + c2 square
struct PolynomialArgs {
  View x;       // (n, n); both contiguous and of one type
  View square;  // (n, n)
  double c0 = 0, c1 = 0, c2 = 0;
};

// w -= lr (scale update + weight_decay w), and low = w, rounded; nothing when scalars->finite is 0.
struct OrthogonalStepArgs {
  View weights;  // (count), f32 on a GPU
  View update;   // (count), on the CPU of the weights' type
  View low;      // GPU: as in AdamArgs, of the update's type; may be absent
  double scale = 1, weight_decay = 0;
  const OptimizerScalars* scalars = nullptr;
};

namespace cpu {
void nesterov(const NesterovArgs&, const Launch&);
void normalise(const NormaliseArgs&, const Launch&);
void polynomial(const PolynomialArgs&, const Launch&);
void orthogonal_step(const OrthogonalStepArgs&, const Launch&);
}  // namespace cpu
namespace cuda {
void nesterov(const NesterovArgs&, const Launch&);
void normalise(const NormaliseArgs&, const Launch&);
void polynomial(const PolynomialArgs&, const Launch&);
void orthogonal_step(const OrthogonalStepArgs&, const Launch&);
}  // namespace cuda

}  // namespace longstride::kernels
