#include "kernels/features/features.h"

#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {
namespace {

template <class Args>
void check_features(Device device, const Args& args) {
  const Tensor &x = args.x, &projection = args.projection;
  check_computes(device, x, "features' x");
  LONGSTRIDE_CHECK(x.rank() == 4 && x.count() > 0, "features' x is {}, but must be (batch, seq, heads, size)",
                   x.shape().text());
  LONGSTRIDE_CHECK(projection.rank() == 3 && (projection.size(0) == 1 || projection.size(0) == x.size(2)) &&
                       projection.size(2) == x.size(3),
                   "features' projection is {} for x {}, but must be (heads or 1, rows, size)",
                   projection.shape().text(), x.shape().text());
  check_rows(x, x.shape(), x.dtype(), "features' x");
  check_vector(projection, projection.count(), exact_type(device, x.dtype()), "features' projection");
  const Shape features{x.size(0), x.size(1), x.size(2), features_of(args.kind, projection.size(1))};
  check_rows(args.features, features, x.dtype(), "features");
}

}  // namespace

void FeaturesArgs::check(Device device) const {
  check_features(device, *this);
  const bool decays = keys && kind != FeatureKind::relu && direction == Direction::past;
  LONGSTRIDE_CHECK(decay.given() == decays,
                   "features have a decay exactly for keys of softmax or trigonometric ones in direction past");
  const Dtype exact = exact_type(device, x.dtype());
  if (decays) check_vector(decay, x.size(0) * x.size(1) * x.size(2), exact, "features' decay");
  if (begin.given()) check_vector(begin, x.size(0) * x.size(1), Dtype::i32, "features' begin");
  for (const Tensor* c : {&first_c, &last_c}) {
    LONGSTRIDE_CHECK(decays || !c->given(), "features without a decay keep no c");
    if (c->given()) check_vector(*c, x.size(0) * x.size(2), exact, "features' c");
  }
}

void FeaturesBackwardArgs::check(Device device) const {
  check_features(device, *this);
  check_rows(dfeatures, features.shape(), x.dtype(), "features' gradient");
  check_rows(dx, x.shape(), x.dtype(), "features' dx");
}

void DrawProjectionArgs::check(Device device) const {
  check_computes(device, projection, "a projection");
  LONGSTRIDE_CHECK(exact_type(device, projection.dtype()) == projection.dtype(), "a projection is {}, but must be f32",
                   name_of(projection.dtype()));
  LONGSTRIDE_CHECK(projection.rank() == 3, "a projection is {}, but must be (heads or 1, rows, size)",
                   projection.shape().text());
  check_contiguous(projection, "a projection");
  const std::int64_t d = projection.size(2);
  LONGSTRIDE_CHECK(orthogonal != Orthogonality::hadamard || (d & (d - 1)) == 0,
                   "a projection by Hadamard's matrix has rows of {}, which is no power of two", d);
  LONGSTRIDE_CHECK(orthogonal != Orthogonality::givens || d > 1, "a row of one element has no plane to rotate in");
}

Tensor FeaturesArgs::scratch_on(Device device) const {
  // c, and behind it two numbers for every segment.
  const std::int64_t n = x.size(1), of_unit = n + (device == Device::cuda ? 2 * running_segments(n) : 0);
  return {nullptr, exact_type(device, x.dtype()), {x.size(0) * x.size(2) * of_unit}};
}

}  // namespace longstride::kernels
