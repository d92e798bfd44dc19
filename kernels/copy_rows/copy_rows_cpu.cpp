#include "kernels/copy_rows/copy_rows.h"

#include <cstring>

#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {

void CopyRowsArgs::check(Device /*device*/) const {
  LONGSTRIDE_CHECK(from.rank() == 3, "from is {}", from.shape().text());
  check_rows(from, from.shape(), from.dtype(), "from");
  check_rows(to, from.shape(), from.dtype(), "to");
}

namespace cpu {

void copy_rows(const CopyRowsArgs& args, const Launch&) {
  const Tensor& from = args.from;
  const Tensor& to = args.to;
  const auto element = static_cast<std::int64_t>(bytes_of(from.dtype()));
  const std::int64_t groups = from.size(0), rows = from.size(1);
  const auto bytes = static_cast<std::size_t>(from.size(2) * element);
  if (bytes == 0) return;
#pragma omp parallel for schedule(static) if (groups * rows > 64)
  for (std::int64_t i = 0; i < groups * rows; ++i) {
    const std::int64_t g = i / rows, r = i % rows;
    std::memcpy(to.as<char>() + (g * to.stride(0) + r * to.stride(1)) * element,
                from.as<const char>() + (g * from.stride(0) + r * from.stride(1)) * element, bytes);
  }
}

}  // namespace cpu
}  // namespace longstride::kernels
