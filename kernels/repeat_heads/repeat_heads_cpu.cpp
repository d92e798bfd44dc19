#include <algorithm>

#include "kernels/base/tensor_checks.h"
#include "kernels/repeat_heads/repeat_heads.h"

namespace longstride::kernels {
namespace {

void check_heads(Device device, const Tensor& few, const Tensor& many) {
  check_computes(device, few, "shared heads");
  LONGSTRIDE_CHECK(few.rank() == 4 && few.count() > 0 && many.rank() == 4 && many.size(2) % few.size(2) == 0,
                   "heads of {} repeated to {}", few.shape().text(), many.shape().text());
  check_rows(few, few.shape(), few.dtype(), "shared heads");
  check_rows(many, {few.size(0), few.size(1), many.size(2), few.size(3)}, few.dtype(), "repeated heads");
}

}  // namespace

void RepeatHeadsArgs::check(Device device) const { check_heads(device, x, y); }
void RepeatHeadsBackwardArgs::check(Device device) const { check_heads(device, dx, dy); }

namespace cpu {
namespace {

// Calls f(shared row, the first of its repeated rows, their stride) for every position and shared head.
template <class T, class F>
void each_shared(const Tensor& few, const Tensor& many, F&& f) {
  const std::int64_t n = few.size(1), shared = few.size(2), repeats = many.size(2) / shared;
#pragma omp parallel for schedule(static) if (many.count() > 16384)
  for (std::int64_t row = 0; row < few.size(0) * n; ++row)
    for (std::int64_t h = 0; h < shared; ++h)
      f(few.as<T>() + row / n * few.stride(0) + row % n * few.stride(1) + h * few.stride(2),
        many.as<T>() + row / n * many.stride(0) + row % n * many.stride(1) + h * repeats * many.stride(2));
}

}  // namespace

void repeat_heads(const RepeatHeadsArgs& args, const Launch&) {
  const std::int64_t size = args.x.size(3), repeats = args.y.size(2) / args.x.size(2), stride = args.y.stride(2);
  with_float_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_shared<T>(args.x, args.y, [&](const T* x, T* y) {
      for (std::int64_t r = 0; r < repeats; ++r) std::copy_n(x, size, y + r * stride);
    });
  });
}

void repeat_heads_backward(const RepeatHeadsBackwardArgs& args, const Launch&) {
  const std::int64_t size = args.dx.size(3), repeats = args.dy.size(2) / args.dx.size(2), stride = args.dy.stride(2);
  with_float_type(args.dx.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_shared<T>(args.dx, args.dy, [&](T* dx, const T* dy) {
      for (std::int64_t c = 0; c < size; ++c) {
        T sum = 0;
        for (std::int64_t r = 0; r < repeats; ++r) sum += dy[r * stride + c];
        dx[c] = sum;
      }
    });
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
