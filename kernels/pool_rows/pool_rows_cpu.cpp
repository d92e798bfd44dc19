#include <algorithm>

#include "kernels/base/tensor_checks.h"
#include "kernels/pool_rows/pool_rows.h"

namespace longstride::kernels {

void PoolRowsArgs::check(Device device) const {
  check_computes(device, x, "x");
  LONGSTRIDE_CHECK(x.rank() == 3 && rate > 0 && x.size(1) % rate == 0, "x is {}, of which {} rows become one",
                   x.shape().text(), rate);
  check_rows(x, x.shape(), x.dtype(), "x");
  check_rows(y, {x.size(0), x.size(1) / rate, x.size(2)}, x.dtype(), "y");
}

namespace cpu {

void pool_rows(const PoolRowsArgs& args, const Launch&) {
  const Tensor &x = args.x, &y = args.y;
  const std::int64_t groups = y.size(0), rows = y.size(1), width = y.size(2), rate = args.rate;
  with_float_type(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
#pragma omp parallel for schedule(static) if (x.count() > 16384)
    for (std::int64_t i = 0; i < groups * rows; ++i) {
      const std::int64_t g = i / rows, r = i % rows;
      const T* const from = x.as<const T>() + g * x.stride(0) + r * rate * x.stride(1);
      T* const to = y.as<T>() + g * y.stride(0) + r * y.stride(1);
      for (std::int64_t c = 0; c < width; ++c) {
        T all = from[c];
        for (std::int64_t k = 1; k < rate; ++k) {
          const T next = from[k * x.stride(1) + c];
          all = args.largest ? std::max(all, next) : all + next;
        }
        to[c] = args.largest ? all : all / static_cast<T>(rate);
      }
    }
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
