// Features whose products estimate the kernel of softmax attention, exp(q . k / sqrt(d)), for a normalised scan
// (Choromanski et al. 2021). With x' = d^(-1/4) x and the rows w_i of a projection
//   softmax        phi_i = exp(w_i . x' - |x'|^2 / 2 - c)
//   trigonometric  phi_i = cos(w_i . x') exp(|x'|^2 / 2 - c), phi_{m+i} = sin(w_i . x') exp(|x'|^2 / 2 - c)
//   relu           phi_i = max(0, w_i . x') + 0.001            another kernel; no c
// c keeps the exponents at 0 or below and cancels in the quotient. Queries have a c each, their largest exponent. Keys
// have the largest so far, so that nothing looks ahead: c_t = max(c_{t-1}, exponents of t). What the scan has summed is
// relative to the c of its time, so c_{t-1} - c_t is the logarithm of its decay. In both directions c is the largest of
// the group. m^(-1/2) would cancel as well and is left out.
#pragma once
#include "kernels/attention/pattern/pattern.h"
#include "kernels/base/op.h"

namespace longstride::kernels {

enum class FeatureKind : std::uint8_t { softmax, trigonometric, relu };

inline std::int64_t features_of(FeatureKind kind, std::int64_t rows_of_projection) {
  return kind == FeatureKind::trigonometric ? 2 * rows_of_projection : rows_of_projection;
}

// Positions of which a block of a GPU finds the running maxima.
inline constexpr std::int64_t running_segment = 4096;
inline std::int64_t running_segments(std::int64_t n) { return (n + running_segment - 1) / running_segment; }

// On the CPU all tensors but `begin` are f32 or all f64. On a GPU x, the features and their gradients are f32, bf16 or
// f16, and all others f32.
struct FeaturesArgs {
  FeatureKind kind;
  Tensor x;           // (batch, n, heads, d), any strides but the last
  Tensor projection;  // (heads or 1, m, d) contiguous
  Tensor features;    // (batch, n, heads, features_of(kind, m)), any strides but the last, written
  bool keys = false;
  Tensor decay = {};  // keys in direction past, but of relu: (batch, n, heads) contiguous, written
  Tensor begin = {};  // keys: (batch, 1, n) i32, as the scan's
  // Keys in direction past, for a scan with states: c before these positions (-infinity where a stream starts), and
  // behind them, written; (batch, heads); may be one tensor.
  Tensor first_c = {}, last_c = {};
  bool states = false;  // they are states of rows: where a stream starts first_c is 0, which last_c never is
  Direction direction = Direction::past;
  Tensor scratch = {};

  void check(Device device) const;
  Tensor scratch_on(Device device) const;
  Cost cost() const {
    const double products = static_cast<double>(x.count()) * static_cast<double>(projection.size(1));
    return {WorkKind::other, bytes_of(x, projection, features), 2 * products};
  }
};
LONGSTRIDE_OP(features, FeaturesArgs)

// Without the gradient by c, which the quotient makes 0.
struct FeaturesBackwardArgs {
  FeatureKind kind;
  Tensor x, projection, features;  // as above
  Tensor dfeatures;                // like features, overwritten
  Tensor dx;                       // like x, written

  void check(Device device) const;
  Cost cost() const {
    const double products = static_cast<double>(x.count()) * static_cast<double>(projection.size(1));
    return {WorkKind::other, bytes_of(x, projection, features, dfeatures, dx), 2 * products};
  }
};
LONGSTRIDE_OP(features_backward, FeaturesBackwardArgs)

// How each run of d rows of a projection is made orthogonal; the last may be the first rows of one. Rows keep the
// lengths that they were drawn with.
//   gram_schmidt  a row alone has the distribution of a drawn one, so estimates of the kernel have no bias
//   hadamard      rows of H D_1 H D_2 H D_3 / d^(3/2), D_i with random signs; d must be a power of two
//   givens        rows of a product of d ceil(ln d) rotations in random planes by random angles
// The last two are cheaper for large d, and their bias vanishes with it (Choromanski et al. 2021, appendix B.2).
enum class Orthogonality : std::uint8_t { none, gram_schmidt, hadamard, givens };

// The rows of a projection: normal numbers, element (head, i, j) from Philox with the key `seed`, the element's index,
// step `redraw` and the layer, made orthogonal in double (directions.h says what that draws).
struct DrawProjectionArgs {
  Tensor projection;  // (heads or 1, m, d) contiguous, f32, or on the CPU f64, written
  std::uint64_t seed = 1;
  std::uint32_t redraw = 0, layer = 0;
  Orthogonality orthogonal = Orthogonality::gram_schmidt;
  const std::int64_t* step = nullptr;  // on the device: if given, `redraw` is *step / every
  std::int64_t every = 1;
  Tensor scratch = {};

  void check(Device device) const;
  Tensor scratch_on(Device) const { return {nullptr, Dtype::f64, projection.shape()}; }
  Cost cost() const { return {WorkKind::other, bytes_of(projection), 0}; }
};
LONGSTRIDE_OP(draw_projection, DrawProjectionArgs)

}  // namespace longstride::kernels
