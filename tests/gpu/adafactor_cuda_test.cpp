#include "kernels/adafactor/adafactor.h"

#include "tests/gpu/against_cpu.h"

namespace longstride::test::adafactor_cuda_test {
namespace {

using kernels::FactoredMatrices;
using kernels::MatrixOffsets;
using kernels::OptimizerScalars;

struct Size {
  std::int64_t rows, columns;
};
const Size sizes[] = {{1, 1}, {1, 5000}, {300, 1}, {65, 300}, {700, 129}};

constexpr std::int64_t matrices = 3;

// Three matrices in flat buffers, unordered and with gaps.
struct Group {
  Size size;
  OptimizerScalars host;
  DeviceArray<OptimizerScalars> gpu;
  std::int64_t step = 4;
  DeviceArray<std::int64_t> gpu_step;
  std::int64_t flat;
  Array gradient, weights, moments, row_mean;

  Group(Size s, bool finite)
      : size(s),
        host(scalars_of(finite)),
        gpu(std::vector<OptimizerScalars>{host}),
        gpu_step(std::vector<std::int64_t>{step}),
        flat(3 * s.rows * s.columns + 40),
        gradient(Array::normal({flat}, Dtype::f32, 1)),
        weights(Array::normal({flat}, Dtype::f32, 2)),
        moments(Array::of({3 * (s.rows + s.columns + 10)}, Dtype::f32, uneven(3 * (s.rows + s.columns + 10)))),
        row_mean(Array::of({matrices}, Dtype::f64, {0.5, 0.75, 1})) {}

  static OptimizerScalars scalars_of(bool finite) {
    OptimizerScalars s;
    s.learning_rate = 0.01;
    s.clip_coefficient = 0.25;
    s.finite = finite ? 1 : 0;
    return s;
  }
  static std::vector<double> uneven(std::int64_t count) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(0.5 + static_cast<double>(i % 7) / 8);
    return values;
  }
  MatrixOffsets at() const {
    const std::int64_t count = size.rows * size.columns;
    return {{count + 20, 1, 2 * count + 33}};
  }
  FactoredMatrices of(Side side) {
    const std::int64_t each = size.rows + size.columns + 10;
    FactoredMatrices m;
    m.matrices = matrices;
    m.rows = size.rows;
    m.columns = size.columns;
    m.at = at();
    m.moments = moments.view(side);
    m.rows_at = {{each, 3, 2 * each}};
    m.columns_at = {{each + size.rows + 2, 3 + size.rows, 2 * each + size.rows}};
    return m;
  }
  const OptimizerScalars* scalars(Side side) { return side == Side::gpu ? gpu.data() : &host; }
};

TEST(AdafactorCuda, MomentsMatchTheCpuAndSkipANonFiniteGradient) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Size size : sizes)
    for (const bool finite : {true, false}) {
      Group g(size, finite);
      const std::vector<unsigned char> before = g.moments.raw();
      Array scratch({matrices, kernels::FactoredMomentsArgs::chunks(size.rows), size.columns}, Dtype::f64);
      compare("factored_moments", kernels::cpu::factored_moments, kernels::cuda::factored_moments,
              [&](Side side) {
                kernels::FactoredMomentsArgs args{
                    .group = g.of(side), .gradient = g.gradient.view(side), .row_mean = g.row_mean.view(side)};
                args.scratch = scratch.view(side);
                args.scalars = g.scalars(side);
                args.step = side == Side::gpu ? g.gpu_step.data() : &g.step;
                return args;
              },
              {{"moments", &g.moments}});
      EXPECT_EQ(g.moments.raw() == before, !finite);
    }
}

TEST(AdafactorCuda, SizesMatchTheCpu) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Size size : sizes) {
    Group g(size, true);
    Array scratch({matrices, std::max<std::int64_t>(size.rows, kernels::FactoredSizesArgs::chunks), 2}, Dtype::f64);
    Array found({matrices, 2}, Dtype::f64);
    found.come_from_f32(6);  // of an update: the scale, scaled gradient, share, product, root and quotient
    compare("factored_sizes", kernels::cpu::factored_sizes, kernels::cuda::factored_sizes,
            [&](Side side) {
              kernels::FactoredSizesArgs args{.group = g.of(side),
                                              .gradient = g.gradient.view(side),
                                              .weights = g.weights.view(side),
                                              .row_mean = g.row_mean.view(side),
                                              .sizes = found.view(side)};
              args.scratch = scratch.view(side);
              args.scalars = g.scalars(side);
              return args;
            },
            {{"sizes", &found}});
  }
}

struct Step {
  Dtype low;
  bool momentum, scaled, finite;
};

void expect_step(Size size, const Step& step) {
  Group g(size, step.finite);
  Array found = Array::of({matrices, 2}, Dtype::f64, {0.5, 1e-9, 3, 0.2, 1, 1});
  Array m = Array::normal({g.flat}, Dtype::f32, 3), low({g.flat}, step.low);
  const std::vector<unsigned char> before = g.weights.raw(), m_before = m.raw();
  compare("factored_step", kernels::cpu::factored_step, kernels::cuda::factored_step,
          [&](Side side) {
            kernels::FactoredStepArgs args{.group = g.of(side),
                                           .gradient = g.gradient.view(side),
                                           .weights = g.weights.view(side),
                                           .m_at = g.at(),
                                           .row_mean = g.row_mean.view(side),
                                           .sizes = found.view(side)};
            if (side == Side::gpu && step.low != Dtype::f32) args.low_precision = low.view(side);
            if (step.momentum) args.m = m.view(side);
            args.beta1 = step.momentum ? 0.9 : 0;
            args.weight_decay = 0.1;
            args.scale_parameter = step.scaled;
            args.scalars = g.scalars(side);
            return args;
          },
          {{"weights", &g.weights}, {"m", &m}});
  EXPECT_EQ(g.weights.raw() == before, !step.finite);
  EXPECT_EQ(m.raw() == m_before, !step.finite || !step.momentum);
  if (!step.finite || step.low == Dtype::f32) return;
  const std::vector<double> weights = g.weights.found(), copy = low.found();
  for (const std::int64_t begin : {g.at().at[0], g.at().at[1], g.at().at[2]})
    for (std::int64_t i = begin; i < begin + size.rows * size.columns; ++i)
      ASSERT_EQ(copy[static_cast<std::size_t>(i)], rounded(weights[static_cast<std::size_t>(i)], step.low)) << i;
}

TEST(AdafactorCuda, TheStepMatchesTheCpuAndSkipsANonFiniteGradient) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Size size : sizes)
    for (const Dtype low : {Dtype::f32, Dtype::bf16, Dtype::f16})
      for (const bool momentum : {false, true}) expect_step(size, {low, momentum, !momentum, true});
  expect_step(sizes[3], {Dtype::bf16, true, true, false});
}

}  // namespace
}  // namespace longstride::test::adafactor_cuda_test
