#include "kernels/adagrad/adagrad.h"

#include "tests/gpu/against_cpu.h"

namespace longstride::test::adagrad_cuda_test {
namespace {

using kernels::OptimizerScalars;

OptimizerScalars scalars_of(bool finite) {
  OptimizerScalars s;
  s.learning_rate = 0.01;
  s.clip_coefficient = 0.25;
  s.finite = finite ? 1 : 0;
  return s;
}

struct Step {
  std::int64_t count, begin;  // `begin` elements into the arrays, so that they are not aligned
  Dtype low;
  double tensor_clip, squares;
  bool finite = true;
};

void expect_step(const Step& step) {
  const OptimizerScalars host = scalars_of(step.finite);
  const DeviceArray<OptimizerScalars> gpu(std::vector<OptimizerScalars>{host});
  const std::int64_t size = step.count + step.begin;
  Array w = Array::normal({size}, Dtype::f32, 1), g = Array::normal({size}, Dtype::f32, 2);
  Array sum = Array::of({size}, Dtype::f32, std::vector<double>(static_cast<std::size_t>(size), 0.5));
  Array squares = Array::of({1}, Dtype::f64, {step.squares}), low({size}, step.low);
  const std::vector<unsigned char> before = w.raw(), sum_before = sum.raw();
  compare("adagrad", kernels::cpu::adagrad, kernels::cuda::adagrad,
          [&](Side side) {
            const auto of = [&](Array& a) { return a.view(side).slice(0, step.begin, size); };
            kernels::AdagradArgs args{.weights = of(w), .gradient = of(g), .sum = of(sum)};
            if (side == Side::gpu && step.low != Dtype::f32) args.low_precision = of(low);
            if (step.tensor_clip > 0) args.tensor_squares = squares.view(side);
            args.tensor_clip = step.tensor_clip;
            args.weight_decay = 0.1;
            args.scalars = side == Side::gpu ? gpu.data() : &host;
            return args;
          },
          {{"weights", &w}, {"sum", &sum}});
  EXPECT_EQ(w.raw() == before, !step.finite);
  EXPECT_EQ(sum.raw() == sum_before, !step.finite);
  if (!step.finite || step.low == Dtype::f32) return;
  const std::vector<double> weights = w.found(), copy = low.found();
  for (auto i = static_cast<std::size_t>(step.begin); i < weights.size(); ++i)
    ASSERT_EQ(copy[i], rounded(weights[i], step.low)) << i;
}

TEST(AdagradCuda, TheStepMatchesTheCpuAndSkipsANonFiniteGradient) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Dtype low : {Dtype::f32, Dtype::bf16, Dtype::f16})
    for (const std::int64_t count : {1, 255, 300007})
      for (const std::int64_t begin : {0, 3}) expect_step({count, begin, low, 0, 0});
  expect_step({4096, 0, Dtype::bf16, 0, 0, false});
}

TEST(AdagradCuda, ATensorsLimitLowersItsRate) {
  LONGSTRIDE_NEEDS_GPU();
  for (const double squares : {1e-4, 1e4}) expect_step({300007, 0, Dtype::bf16, 0.5, squares});
}

}  // namespace
}  // namespace longstride::test::adagrad_cuda_test
