// Dropout in a pass of its own. With a normalisation it is tested in layer_norm_test.cpp.
#include "kernels/dropout/dropout.h"

#include <cmath>

#include "tests/ops/op_test.h"

namespace longstride::testing {
namespace {

using kernels::DropoutArgs;

class DropoutTest : public OpTest {
 protected:
  static constexpr std::uint64_t seed = 0x123456789ABCDEF;
  static constexpr std::uint32_t layer = 1u << 21;
  static constexpr std::int64_t step = 70000;

  // From the definition of the mask, with one rounding.
  double expected(double x, double residual, const DropoutArgs& args, std::int64_t i) const {
    const auto e = static_cast<std::uint64_t>(args.first_element + i);
    const std::uint32_t word =
        kernels::philox(seed, e / 4, step, kernels::domain_of(kernels::Purpose::dropout, layer)).word[e % 4];
    if (word < static_cast<double>(args.p) * 4294967296.0) return residual;
    if (args.y.dtype() == Dtype::f64) return residual + x * (1 / (1 - static_cast<double>(args.p)));
    const float scale = 1.0f / (1.0f - args.p);
    return rounded(std::fma(static_cast<float>(x), scale, static_cast<float>(residual)), args.y.dtype());
  }
};
LONGSTRIDE_OP_TESTS(DropoutTest);

// Wherever a draw of four elements begins and ends, with and without something to add.
TEST_P(DropoutTest, DropsWhatTheDefinitionDrops) {
  Operand now = with_values({1}, Dtype::i64, {static_cast<double>(step)});
  for (const std::int64_t count : {1, 3, 4, 1021, 4096, 70000})
    for (const std::int64_t first : {std::int64_t{0}, std::int64_t{5}, std::int64_t{96}, (std::int64_t{1} << 34) + 3})
      for (const bool adds : {false, true}) {
        Operand x = normals({count}, 1), residual = normals({count}, exact(), 2), y = result({count}, exact());
        DropoutArgs args{.branch = x, .y = y, .p = 0.4f, .seed = seed, .layer = layer, .first_element = first};
        if (x->dtype() != y->dtype() && device() == Device::cpu) continue;
        if (adds) args.residual = residual;
        args.step = now->as<std::int64_t>();
        run(args, {&y});
        const std::vector<double> found = y.found();
        for (std::int64_t i = 0; i < count; ++i) {
          const double value = expected(x.at(i), adds ? residual.at(i) : 0, args, i);
          // The CPU may round the product before it adds.
          const double epsilon = args.y.dtype() == Dtype::f64 ? 0x1p-52 : 0x1p-23;
          const double unit = adds && device() == Device::cpu ? epsilon * (1 + std::abs(value) + std::abs(x.at(i))) : 0;
          ASSERT_NEAR(found[static_cast<std::size_t>(i)], value, unit) << count << " " << first << " " << i;
        }
      }
}

TEST_P(DropoutTest, WorksInPlaceAndWithUnalignedTensors) {
  Operand now = with_values({1}, Dtype::i64, {static_cast<double>(step)});
  for (const std::int64_t skipped : {0, 1, 3}) {
    Operand x = normals({5000}, 1);
    const Tensor part = x->slice(0, skipped, 5000);
    DropoutArgs args{.branch = part, .y = part, .p = 0.25f, .seed = seed, .layer = layer, .first_element = 8};
    args.step = now->as<std::int64_t>();
    run(args, {&x});
    const std::vector<double> found = x.found();
    for (std::int64_t i = skipped; i < 5000; ++i)
      ASSERT_EQ(found[static_cast<std::size_t>(i)], expected(x.at(i), 0, args, i - skipped)) << skipped << " " << i;
  }
}

}  // namespace
}  // namespace longstride::testing
