#include <cmath>
#include <limits>

#include "kernels/base/tensor_checks.h"
#include "kernels/merge_parts/merge_parts.h"

namespace longstride::kernels {

void MergePartsArgs::check(Device device) const {
  check_computes(device, parts, "attention's parts");
  LONGSTRIDE_CHECK(o.rank() == 4 && lse_parts.rank() == 4,
                   "attention's o is {} and the parts' lse {}, but must be "
                   "(batch, seq, heads, size) and (pieces, batch, heads, seq)",
                   o.shape().text(), lse_parts.shape().text());
  const std::int64_t pieces = lse_parts.size(0), batch = o.size(0), n = o.size(1), heads = o.size(2);
  const Shape all{pieces * batch, n, heads, o.size(3)}, rows{batch, heads, n}, of_pieces{pieces, batch, heads, n};
  LONGSTRIDE_CHECK(
      pieces > 0 && parts.shape() == all && lse.shape() == rows && lse_parts.shape() == of_pieces,
      "attention's parts are {} with lse {} into {} with lse {}, but pieces, sequences, positions and heads "
      "must agree",
      parts.shape().text(), lse_parts.shape().text(), o.shape().text(), lse.shape().text());
  const Dtype exact = exact_type(device, parts.dtype());
  check_contiguous(parts, "attention's parts");
  check_vector(o, o.count(), parts.dtype(), "attention's o");
  check_vector(lse_parts, of_pieces.count(), exact, "the parts' lse");
  check_vector(lse, rows.count(), exact, "attention's lse");
}

namespace cpu {
namespace {

template <class T>
void merge(const MergePartsArgs& args) {
  const std::int64_t pieces = args.lse_parts.size(0), n = args.o.size(1), heads = args.o.size(2), size = args.o.size(3),
                     rows = args.o.size(0) * n;
  constexpr T none = -std::numeric_limits<T>::infinity();
#pragma omp parallel for schedule(static) if (args.parts.count() > 16384)
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t at = (row / n * heads + h) * n + row % n;
      const auto lse_of = [&](std::int64_t p) { return args.lse_parts.as<const T>()[p * rows * heads + at]; };
      T top = none, sum = 0;
      for (std::int64_t p = 0; p < pieces; ++p) top = std::max(top, lse_of(p));
      for (std::int64_t p = 0; p < pieces; ++p) sum += lse_of(p) > none ? std::exp(lse_of(p) - top) : T(0);
      const T lse = sum > 0 ? top + std::log(sum) : none;
      T* o = args.o.as<T>() + (row * heads + h) * size;
      for (std::int64_t p = 0; p < pieces; ++p) {
        const T weight = lse_of(p) > none ? std::exp(lse_of(p) - lse) : T(0);
        const T* part = args.parts.as<const T>() + ((p * rows + row) * heads + h) * size;
        if (p == 0)
          for (std::int64_t d = 0; d < size; ++d) o[d] = weight > 0 ? weight * part[d] : T(0);
        else if (weight > 0)
          for (std::int64_t d = 0; d < size; ++d) o[d] += weight * part[d];
      }
      args.lse.as<T>()[at] = lse;
    }
}

}  // namespace

void merge_parts(const MergePartsArgs& args, const Launch&) {
  with_float_type(args.parts.dtype(), [&](auto zero) { merge<decltype(zero)>(args); });
}

}  // namespace cpu
}  // namespace longstride::kernels
