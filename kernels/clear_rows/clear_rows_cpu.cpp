#include "kernels/clear_rows/clear_rows.h"

#include <cstring>

#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {

void ClearRowsArgs::check(Device /*device*/) const {
  LONGSTRIDE_CHECK(x.rank() == 2, "x is {}", x.shape().text());
  check_contiguous(x, "x");
  check_vector(marked, x.size(0), Dtype::u8, "marked");
}

namespace cpu {

void clear_rows(const ClearRowsArgs& args, const Launch&) {
  const auto bytes = static_cast<std::size_t>(args.x.size(1)) * bytes_of(args.x.dtype());
  const auto* marked = args.marked.as<const std::uint8_t>();
#pragma omp parallel for schedule(static) if (args.x.count() > 16384)
  for (std::int64_t r = 0; r < args.x.size(0); ++r)
    if (marked[r] != 0) std::memset(args.x.as<char>() + static_cast<std::size_t>(r) * bytes, 0, bytes);
}

}  // namespace cpu
}  // namespace longstride::kernels
