#include "kernels/muon/muon.h"

#include "tests/gpu/against_cpu.h"

namespace longstride::test::muon_cuda_test {
namespace {

using kernels::OptimizerScalars;

struct Scalars {
  OptimizerScalars host;
  DeviceArray<OptimizerScalars> gpu;
  explicit Scalars(bool finite) : host(of(finite)), gpu(std::vector<OptimizerScalars>{host}) {}
  const OptimizerScalars* of(Side side) { return side == Side::gpu ? gpu.data() : &host; }
  static OptimizerScalars of(bool finite) {
    OptimizerScalars s;
    s.learning_rate = 0.01;
    s.clip_coefficient = 0.25;
    s.finite = finite ? 1 : 0;
    return s;
  }
};

constexpr std::int64_t matrices = 3;

// Three matrices in a flat buffer, unordered and with gaps.
kernels::MatrixOffsets offsets(std::int64_t count, std::int64_t gap) {
  return {{count + 2 * gap, 1, 2 * count + 3 * gap}};
}
std::int64_t flat_size(std::int64_t count, std::int64_t gap) { return 3 * count + 4 * gap; }

TEST(MuonCuda, MomentumAndUpdateMatchTheCpu) {
  LONGSTRIDE_NEEDS_GPU();
  for (const std::int64_t count : {1, 255, 300007})
    for (const bool finite : {true, false}) {
      Scalars s(finite);
      Array g = Array::normal({flat_size(count, 7)}, Dtype::f32, 1),
            m = Array::normal({flat_size(count, 1)}, Dtype::f32, 2);
      Array update({matrices, count}, Dtype::f32);
      const std::vector<unsigned char> before = m.raw();
      compare("nesterov", kernels::cpu::nesterov, kernels::cuda::nesterov,
              [&](Side side) {
                return kernels::NesterovArgs{g.view(side),      offsets(count, 7), m.view(side),
                                             offsets(count, 1), update.view(side), 0.95,
                                             s.of(side)};
              },
              {{"m", &m}, {"update", &update}});
      EXPECT_EQ(m.raw() == before, !finite);
      if (finite) continue;
      for (const double x : update.found()) ASSERT_EQ(x, 0);
    }
}

TEST(MuonCuda, NormalisesInEveryType) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Dtype type : {Dtype::f32, Dtype::bf16, Dtype::f16})
    for (const double deviation : {0.0, 1e-6, 10.0})
      for (const std::int64_t count : {1, 70001}) {
        Array x = Array::normal({matrices, count}, Dtype::f32, 1, deviation), y({matrices, count}, type);
        Array partials({matrices, kernels::NormaliseArgs::chunks}, Dtype::f64);
        compare("normalise", kernels::cpu::normalise, kernels::cuda::normalise,
                [&](Side side) {
                  return kernels::NormaliseArgs{x.view(side), partials.view(side), y.view(side), 1e-3};
                },
                {{"y", &y}});
      }
}

TEST(MuonCuda, ThePolynomialMatchesTheCpu) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Dtype type : {Dtype::f32, Dtype::bf16, Dtype::f16})
    for (const std::int64_t n : {1, 17, 300}) {
      Array x = Array::normal({matrices, n, n}, type, 1, 0.1), square = Array::normal({matrices, n, n}, type, 2, 0.1);
      compare("polynomial", kernels::cpu::polynomial, kernels::cuda::polynomial,
              [&](Side side) {
                return kernels::PolynomialArgs{x.view(side), square.view(side), 3.4445, -4.7750, 2.0315};
              },
              {{"square", &square}});
    }
}

void expect_step(Dtype type, bool finite) {
  constexpr std::int64_t count = 300007, gap = 5;
  const kernels::MatrixOffsets at = offsets(count, gap);
  Scalars s(finite);
  Array w = Array::normal({flat_size(count, gap)}, Dtype::f32, 1), update = Array::normal({matrices, count}, type, 2);
  Array low({flat_size(count, gap)}, type);
  const std::vector<unsigned char> before = w.raw(), low_before = low.raw();
  compare("orthogonal_step", kernels::cpu::orthogonal_step, kernels::cuda::orthogonal_step,
          [&](Side side) {
            kernels::OrthogonalStepArgs args;
            args.weights = w.view(side);
            args.at = at;
            args.update = update.view(side);
            if (side == Side::gpu && type != Dtype::f32) args.low_precision = low.view(side);
            args.scale = 3;
            args.weight_decay = 0.1;
            args.scalars = s.of(side);
            return args;
          },
          {{"weights", &w}});
  EXPECT_EQ(w.raw() == before, !finite);
  EXPECT_EQ(low.raw() == low_before, !finite || type == Dtype::f32);
  if (!finite || type == Dtype::f32) return;
  const std::vector<double> weights = w.found(), copy = low.found();
  for (std::int64_t matrix = 0; matrix < matrices; ++matrix)
    for (std::int64_t j = 0; j < count; ++j) {
      const auto i = static_cast<std::size_t>(at.at[matrix] + j);
      ASSERT_EQ(copy[i], rounded(weights[i], type)) << i;
    }
}

TEST(MuonCuda, TheStepMatchesTheCpuAndSkipsANonFiniteGradient) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Dtype type : {Dtype::f32, Dtype::bf16, Dtype::f16})
    for (const bool finite : {true, false}) expect_step(type, finite);
}

}  // namespace
}  // namespace longstride::test::muon_cuda_test
