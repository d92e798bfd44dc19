#include <algorithm>
#include <bit>

#include "kernels/base/tensor_checks.h"
#include "kernels/quantise/fp8.h"
#include "kernels/quantise/quantise.h"

namespace longstride::kernels {

void QuantiseArgs::check(Device device) const {
  check_computes(device, x, "x");
  LONGSTRIDE_CHECK(x.rank() == 2 && (x.stride(0) == 1 || x.stride(1) == 1 || x.size(0) == 1 || x.size(1) == 1),
                   "x {} has no dense dimension", x.shape().text());
  LONGSTRIDE_CHECK(is_fp8(q.dtype()), "q is {}", name_of(q.dtype()));
  check_rows(q, x.shape(), q.dtype(), "q");
  check_contiguous(q, "q");
  check_vector(scales, x.size(0), Dtype::f32, "scales");
}

namespace cpu {
namespace {

template <class T>
void quantise_row(const QuantiseArgs& args, std::int64_t row) {
  const std::int64_t width = args.x.size(1), apart = args.x.stride(1);
  const T* const x = args.x.as<const T>() + row * args.x.stride(0);
  std::uint8_t* const q = args.q.as<std::uint8_t>() + row * width;
  float& scale = args.scales.as<float>()[row];
  const Dtype dtype = args.q.dtype();
  std::uint32_t largest = 0;  // magnitudes as bits: those of infinities and of what is not a number are the largest
  for (std::int64_t j = 0; j < width; ++j)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(static_cast<float>(x[j * apart])) & 0x7FFFFFFF);
  if (is_infinite_or_nan(largest)) {
    scale = std::numeric_limits<float>::quiet_NaN();
    std::fill_n(q, width, std::uint8_t{0});
    return;
  }
  const int exponent = fp8_scale_exponent(largest, dtype);
  scale = std::bit_cast<float>(power_of_two_bits(exponent));
  const float inverse = std::bit_cast<float>(power_of_two_bits(-exponent));
  for (std::int64_t j = 0; j < width; ++j) q[j] = fp8_code(static_cast<float>(x[j * apart]) * inverse, dtype);
}

}  // namespace

void quantise(const QuantiseArgs& args, const Launch&) {
  const std::int64_t rows = args.x.size(0);
  with_float_type(args.x.dtype(), [&](auto zero) {
#pragma omp parallel for schedule(static) if (args.x.count() > 16384)
    for (std::int64_t row = 0; row < rows; ++row) quantise_row<decltype(zero)>(args, row);
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
