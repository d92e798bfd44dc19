#include "kernels/adam/adam.h"

#include "tests/gpu/against_cpu.h"

namespace longstride::test::adam_cuda_test {
namespace {

using kernels::OptimizerScalars;

// The scalars of one side, and the step that they belong to.
struct Scalars {
  OptimizerScalars host;
  std::int64_t step;
  DeviceArray<OptimizerScalars> gpu;
  DeviceArray<std::int64_t> gpu_step;
  Scalars(const OptimizerScalars& s, std::int64_t t)
      : host(s), step(t), gpu(std::vector<OptimizerScalars>{s}), gpu_step(std::vector<std::int64_t>{t}) {}
  OptimizerScalars* of(Side side) { return side == Side::gpu ? gpu.data() : &host; }
  const std::int64_t* step_of(Side side) const { return side == Side::gpu ? gpu_step.data() : &step; }
};

TEST(AdamCuda, ScalarsMatchTheCpu) {
  LONGSTRIDE_NEEDS_GPU();
  for (const bool dynamic : {false, true})
    for (const double sum :
         {0.0, 1e-6, 4.0, 1e30, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
      for (const std::int64_t good : {std::int64_t{0}, kernels::LossScale::interval - 1})
        for (const float scale : {1.0f, 2.0f, 65536.0f, kernels::LossScale::most}) {
          OptimizerScalars start;
          start.sum_of_squares = sum;
          start.loss_scale = scale;
          start.good_steps = good;
          Scalars s(start, 77);
          for (const Side side : {Side::gpu, Side::exact}) {
            const kernels::OptimizerScalarsArgs args{s.of(side), s.step_of(side), {1e-3, 10, 1000}, 1.0, dynamic};
            (side == Side::gpu ? kernels::cuda::optimizer_scalars : kernels::cpu::optimizer_scalars)(args, {});
          }
          const OptimizerScalars found = s.gpu.host()[0];
          EXPECT_NEAR(found.learning_rate, s.host.learning_rate, 1e-18);
          EXPECT_EQ(found.finite, s.host.finite);
          EXPECT_EQ(found.loss_scale, s.host.loss_scale);
          EXPECT_EQ(found.good_steps, s.host.good_steps);
          EXPECT_EQ(found.skipped, s.host.skipped);
          EXPECT_EQ(found.skipped_in_row, s.host.skipped_in_row);
          if (s.host.finite == 0) continue;
          EXPECT_NEAR(found.gradient_norm, s.host.gradient_norm, 1e-14 * s.host.gradient_norm);
          EXPECT_NEAR(found.clip_coefficient, s.host.clip_coefficient, 1e-14 * s.host.clip_coefficient);
        }
}

TEST(AdamCuda, StartsTheScalars) {
  LONGSTRIDE_NEEDS_GPU();
  const DeviceArray<OptimizerScalars> scalars(1);
  kernels::cuda::start_scalars({scalars.data(), 1024, 7}, {});
  const OptimizerScalars found = scalars.host()[0];
  EXPECT_EQ(found.loss_scale, 1024);
  EXPECT_EQ(found.good_steps, 7);
  EXPECT_EQ(found.skipped, 0);
  EXPECT_EQ(found.sum_of_squares, 0);
}

void expect_update(std::int64_t count, Dtype low_type, bool finite) {
  OptimizerScalars start;
  start.learning_rate = 0.01;
  start.clip_coefficient = 0.25;
  start.finite = finite ? 1 : 0;
  Scalars s(start, 5);
  Array w = Array::normal({count}, Dtype::f32, 1), g = Array::normal({count}, Dtype::f32, 2);
  Array m = Array::normal({count}, Dtype::f32, 3, 0.1), v = Array::normal({count}, Dtype::f32, 4, 0.01, 0.1);
  Array low({count}, low_type);
  const std::vector<unsigned char> before = w.raw(), low_before = low.raw();
  const auto make = [&](Side side) {
    kernels::AdamArgs args;
    args.weights = w.view(side);
    args.gradient = g.view(side);
    args.m = m.view(side);
    args.v = v.view(side);
    if (side == Side::gpu) args.low_precision = low.view(side);
    args.decayed = count / 3;
    args.weight_decay = 0.1;
    args.scalars = s.of(side);
    args.step = s.step_of(side);
    return args;
  };
  compare("adam", kernels::cpu::adam, kernels::cuda::adam, make, {{"weights", &w}, {"m", &m}, {"v", &v}});
  if (finite) {
    const std::vector<double> weights = w.found(), copy = low.found();
    for (std::size_t i = 0; i < weights.size(); ++i) ASSERT_EQ(copy[i], rounded(weights[i], low_type)) << i;
  } else {
    EXPECT_EQ(w.raw(), before);
    EXPECT_EQ(low.raw(), low_before);
  }
}

// Early, where the decay grows with the updates, and late, where it is 0.999.
void expect_average(std::int64_t count, std::int64_t step, bool finite) {
  OptimizerScalars start;
  start.skipped = 2;
  start.finite = finite ? 1 : 0;
  Scalars s(start, step);
  Array w = Array::normal({count}, Dtype::f32, 1), average = Array::normal({count}, Dtype::f32, 5);
  const double weight = w.found()[0], old = average.found()[0];
  const std::vector<unsigned char> before = average.raw();
  compare("average", kernels::cpu::average, kernels::cuda::average,
          [&](Side side) {
            return kernels::AverageArgs{w.view(side), average.view(side), 0.999, s.of(side), s.step_of(side)};
          },
          {{"average", &average}});
  EXPECT_EQ(average.raw() == before, !finite);
  const double t = static_cast<double>(step + 1 - 2), decay = std::min(0.999, (1 + t) / (10 + t));
  if (finite) {
    EXPECT_NEAR(average.found()[0], decay * old + (1 - decay) * weight, 1e-6);
  }
}

TEST(AdamCuda, TheAverageEqualsTheCpus) {
  LONGSTRIDE_NEEDS_GPU();
  for (const std::int64_t step : {2, 5, 8000, 20000})
    for (const std::int64_t count : {1, 4099, 3000003}) expect_average(count, step, true);
  expect_average(4099, 5, false);
}

TEST(AdamCuda, EqualsTheCpuAndRoundsTheCopy) {
  LONGSTRIDE_NEEDS_GPU();
  for (const std::int64_t count : {1, 3, 4096, 3000003})
    for (const Dtype low : {Dtype::bf16, Dtype::f16}) expect_update(count, low, true);
}

TEST(AdamCuda, LeavesEverythingAsItIsWhenTheGradientIsNotFinite) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Dtype low : {Dtype::bf16, Dtype::f16}) expect_update(4099, low, false);
}

}  // namespace
}  // namespace longstride::test::adam_cuda_test
