// The passes of Muon (Jordan et al. 2024) around its matrix products: the momentum before, the polynomial between and
// the weights after them, for several matrices of one shape at a time. As in adam.h, the scalars are in device memory,
// and a step whose gradient is not finite changes nothing.
#pragma once
#include <algorithm>

#include "kernels/adam/adam.h"
#include "kernels/elementwise/elementwise.h"

namespace longstride::kernels {

// The offsets, in elements, at which the matrices of a group begin in a flat buffer.
struct MatrixOffsets {
  static constexpr int most = 8;
  std::int64_t at[most] = {};
};

// With g = clip_coefficient * gradient:  m = momentum m + (1 - momentum) g,  update = momentum m + (1 - momentum) g.
// If scalars->finite is 0, m is unchanged and update = 0.
struct NesterovArgs {
  Tensor gradient;  // flat; all contiguous and of one type, f32 on a GPU
  MatrixOffsets gradient_at;
  Tensor m;  // flat
  MatrixOffsets m_at;
  Tensor update;  // (matrices, count of a matrix)
  double momentum = 0;
  const OptimizerScalars* scalars = nullptr;

  void check(Device device) const;
  Cost cost() const { return {WorkKind::optimizer, 4 * bytes_of(update), 0}; }  // gradient and m have its type
};

// y = x / (|x| + epsilon), where |x| is the Frobenius norm of each matrix, summed in f64 in a fixed order.
struct NormaliseArgs {
  static constexpr int chunks = 64;  // per matrix, to sum its norm on a GPU; the CPU uses the chunks of SumArgs
  static constexpr std::int64_t partials_of(std::int64_t count) {
    return std::max<std::int64_t>(chunks, SumArgs::chunks(count));
  }
  Tensor x;  // (matrices, count), contiguous, f32 on a GPU
  Tensor scratch = {};
  Tensor y;  // (matrices, count), contiguous; on the CPU of x's type
  double epsilon = 0;

  void check(Device device) const;
  Cost cost() const { return {WorkKind::optimizer, bytes_of(x, x, y), 0}; }
  Tensor scratch_on(Device) const { return {nullptr, Dtype::f64, {x.size(0), partials_of(x.size(1))}}; }
};

// square = c0 I + c1 x + c2 square
struct PolynomialArgs {
  Tensor x;       // (matrices, n, n); both contiguous and of one type
  Tensor square;  // (matrices, n, n)
  double c0 = 0, c1 = 0, c2 = 0;

  void check(Device device) const;
  Cost cost() const { return {WorkKind::optimizer, bytes_of(x) + 2 * bytes_of(square), 0}; }
};

// w -= lr (scale update + weight_decay w), and low_precision = w, rounded; nothing if scalars->finite is 0.
struct OrthogonalStepArgs {
  Tensor weights;             // flat, f32 on a GPU
  Tensor low_precision = {};  // GPU: flat, as in AdamArgs, of the update's type; may be absent
  MatrixOffsets at;           // in both
  Tensor update;              // (matrices, count); on the CPU of the weights' type
  double scale = 1, weight_decay = 0;
  const OptimizerScalars* scalars = nullptr;

  void check(Device device) const;
  Cost cost() const;
};

LONGSTRIDE_OP(nesterov, NesterovArgs)
LONGSTRIDE_OP(normalise, NormaliseArgs)
LONGSTRIDE_OP(polynomial, PolynomialArgs)
LONGSTRIDE_OP(orthogonal_step, OrthogonalStepArgs)

}  // namespace longstride::kernels
