#include <cstring>

#include "kernels/append_rows/append_rows.h"
#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {

void AppendRowsArgs::check(Device /*device*/) const {
  LONGSTRIDE_CHECK(x.rank() == 3 && ring.rank() == 3 && x.size(1) <= ring.size(1) && first >= 0,
                   "x is {}, the ring {}, first {}", x.shape().text(), ring.shape().text(), first);
  check_rows(x, x.shape(), x.dtype(), "x");
  check_rows(ring, {x.size(0), ring.size(1), x.size(2)}, x.dtype(), "ring");
}

namespace cpu {

void append_rows(const AppendRowsArgs& args, const Launch&) {
  const Tensor &x = args.x, &ring = args.ring;
  const auto element = static_cast<std::int64_t>(bytes_of(x.dtype()));
  for (std::int64_t g = 0; g < x.size(0); ++g)
    for (std::int64_t r = 0; r < x.size(1); ++r) {
      const std::int64_t at = (args.first + r) % ring.size(1);
      std::memcpy(ring.as<char>() + (g * ring.stride(0) + at * ring.stride(1)) * element,
                  x.as<const char>() + (g * x.stride(0) + r * x.stride(1)) * element,
                  static_cast<std::size_t>(x.size(2) * element));
    }
}

}  // namespace cpu
}  // namespace longstride::kernels
