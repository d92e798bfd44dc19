#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/base/tensor_checks.h"
#include "kernels/most_used_rows/most_used_rows.h"

namespace longstride::kernels {

void MostUsedRowsArgs::check(Device device) const {
  check_computes(device, usage, "usage");
  LONGSTRIDE_CHECK(usage.rank() == 3 && x.rank() == 3 && y.rank() == 3 && usage.size(0) == x.size(0) &&
                       usage.size(1) == x.size(1) && y.size(1) <= x.size(1),
                   "usage is {}, x {} and y {}", usage.shape().text(), x.shape().text(), y.shape().text());
  check_computes(device, x, "x");
  LONGSTRIDE_CHECK(device == Device::cpu || x.size(1) <= 16384, "{} rows, but a GPU takes at most 16384", x.size(1));
  check_rows(x, x.shape(), x.dtype(), "x");
  check_rows(y, {x.size(0), y.size(1), x.size(2)}, x.dtype(), "y");
}

namespace cpu {
namespace {

// The rows of group g to keep, in order.
template <class T>
std::vector<std::int64_t> most_used(const Tensor& usage, std::int64_t g, std::int64_t kept) {
  std::vector<T> sums(static_cast<std::size_t>(usage.size(1)), T(0));
  for (std::int64_t r = 0; r < usage.size(1); ++r)
    for (std::int64_t h = 0; h < usage.size(2); ++h)
      sums[static_cast<std::size_t>(r)] +=
          usage.as<const T>()[g * usage.stride(0) + r * usage.stride(1) + h * usage.stride(2)];
  std::vector<std::int64_t> rows(sums.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::stable_sort(rows.begin(), rows.end(), [&](std::int64_t a, std::int64_t b) {
    return sums[static_cast<std::size_t>(a)] > sums[static_cast<std::size_t>(b)];
  });
  rows.resize(static_cast<std::size_t>(kept));
  std::sort(rows.begin(), rows.end());
  return rows;
}

}  // namespace

void most_used_rows(const MostUsedRowsArgs& args, const Launch&) {
  const Tensor &x = args.x, &y = args.y;
  const auto element = static_cast<std::int64_t>(bytes_of(x.dtype()));
  with_float_type(args.usage.dtype(), [&](auto zero) {
#pragma omp parallel for schedule(static)
    for (std::int64_t g = 0; g < x.size(0); ++g) {
      std::int64_t at = 0;
      for (const std::int64_t r : most_used<decltype(zero)>(args.usage, g, y.size(1)))
        std::memcpy(y.as<char>() + (g * y.stride(0) + at++ * y.stride(1)) * element,
                    x.as<const char>() + (g * x.stride(0) + r * x.stride(1)) * element,
                    static_cast<std::size_t>(x.size(2) * element));
    }
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
