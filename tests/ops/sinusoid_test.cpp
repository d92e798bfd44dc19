#include "kernels/sinusoid/sinusoid.h"

#include "tests/ops/op_test.h"

namespace longstride::testing {
namespace {

class SinusoidTest : public OpTest {};
LONGSTRIDE_OP_TESTS(SinusoidTest);

// Angles of up to a hundred thousand radians. In long double they are exact to 1e-14, so the error is that of the type.
TEST_P(SinusoidTest, IsExactAtEveryDistance) {
  constexpr std::int64_t rows = 100003, width = 6, half = width / 2;
  Operand y = result({rows, width});
  run(kernels::SinusoidArgs{y}, {&y});
  const std::vector<double> found = y.found();
  const double rounding = compute() == Dtype::bf16 ? 1.0 / 256 : compute() == Dtype::f16 ? 1.0 / 2048 : 0.0;
  const double tolerance = std::max(rounding, compute() == Dtype::f64 ? 1e-10 : 4e-7);
  for (std::int64_t t = 0; t < rows; t += t < 100 ? 1 : 97)
    for (std::int64_t i = 0; i < half; ++i) {
      const long double angle = static_cast<long double>(t) * std::pow(10000.0L, -2.0L * i / width);
      ASSERT_NEAR(found[static_cast<std::size_t>(t * width + i)], static_cast<double>(std::sin(angle)), tolerance) << t;
      ASSERT_NEAR(found[static_cast<std::size_t>(t * width + half + i)], static_cast<double>(std::cos(angle)),
                  tolerance)
          << t;
    }
}

}  // namespace
}  // namespace longstride::testing
