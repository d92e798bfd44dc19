// Losses whose logits stay in registers on a GPU (kernels/logits_loss), compared with the CPU.
#include "kernels/logits_loss/logits_loss_sm90.h"

#include "kernels/base/gpu_kind.h"
#include "tests/gpu/against_cpu.h"

namespace longstride::test {
namespace {

using kernels::LogitsLossArgs;

constexpr std::int64_t classes = 256;

// Rows that end within a tile, and more than every multiprocessor has of them at once.
struct Head {
  static constexpr std::int64_t rows = 20011;
  Array hidden, weight, targets, weights, losses, gradient;
  Head(Dtype d, std::int64_t width)
      : hidden(Array::normal({rows, width}, d, 1)),
        weight(Array::normal({classes, width}, d, 2, 3 / std::sqrt(static_cast<double>(width)))),
        targets(Array::bytes_below({rows}, classes, 3)),
        weights(Array::normal({rows}, Dtype::f32, 4)),
        losses({rows}, Dtype::f32),
        gradient({rows, classes}, d) {}
};

class LogitsLossCuda : public ::testing::TestWithParam<Dtype> {
 protected:
  // With a gradient, and the same losses without one.
  static void expect_as_exact_as_on_the_cpu(std::int64_t width, bool weighted) {
    Head head(GetParam(), width);
    const DeviceArray<float> by(std::vector<float>{16});
    const float host_by = 16;
    const auto make = [&](Side side) {
      LogitsLossArgs args{.hidden = head.hidden.view(side),
                          .weight = head.weight.view(side),
                          .targets = head.targets.view(side),
                          .losses = head.losses.view(side),
                          .gradient = head.gradient.view(side),
                          .scale = 0.5};
      if (weighted) {
        args.weights = Tensor(head.weights.view(Side::single).data(), Dtype::f32, {Head::rows});
        if (side == Side::gpu) args.weights = head.weights.view(Side::gpu);
        args.loss_scale = side == Side::gpu ? by.data() : &host_by;
      }
      return args;
    };
    EXPECT_EQ(kernels::cuda::sm90::supports_logits_loss(make(Side::gpu)), kernels::cuda::is_hopper());
    if (!kernels::cuda::is_hopper()) return;
    compare<LogitsLossArgs>("width " + std::to_string(width) + (weighted ? ", weighted" : ""),
                            kernels::cpu::logits_loss, kernels::cuda::logits_loss, make,
                            {{"losses", &head.losses}, {"gradient", &head.gradient}},
                            [&] { head.gradient.store_naive(); });
    const std::vector<unsigned char> with_gradient = head.losses.raw();
    LogitsLossArgs alone = make(Side::gpu);
    alone.gradient = {};
    head.losses.reset();
    kernels::cuda::logits_loss(alone, {});
    EXPECT_EQ(head.losses.raw(), with_gradient) << "losses without a gradient";
  }
};

TEST_P(LogitsLossCuda, IsAsExactAsOnTheCpu) {
  LONGSTRIDE_NEEDS_GPU();
  for (const std::int64_t width : {256, 192, 64})
    for (const bool weighted : {false, true}) expect_as_exact_as_on_the_cpu(width, weighted);
}

// For compute-sanitizer (sanitize.sh): one width, at which every stage of the ring is filled again.
TEST_P(LogitsLossCuda, OneWidthIsAsExactAsOnTheCpu) {
  LONGSTRIDE_NEEDS_GPU();
  expect_as_exact_as_on_the_cpu(256, true);
}

// Logits far apart, of which exponentials are 0, and large ones, of which only differences matter.
TEST_P(LogitsLossCuda, StaysExactFarFromZero) {
  LONGSTRIDE_NEEDS_GPU();
  if (!kernels::cuda::is_hopper()) GTEST_SKIP() << "kernels for Hopper";
  Head head(GetParam(), 64);
  head.hidden = Array::normal({Head::rows, 64}, GetParam(), 1, 4, 1);
  head.weight = Array::normal({classes, 64}, GetParam(), 2, 1, 2);
  const auto make = [&](Side side) {
    return LogitsLossArgs{.hidden = head.hidden.view(side),
                          .weight = head.weight.view(side),
                          .targets = head.targets.view(side),
                          .losses = head.losses.view(side),
                          .gradient = head.gradient.view(side)};
  };
  compare<LogitsLossArgs>("far", kernels::cpu::logits_loss, kernels::cuda::logits_loss, make,
                          {{"losses", &head.losses}, {"gradient", &head.gradient}},
                          [&] { head.gradient.store_naive(); });
}

INSTANTIATE_TEST_SUITE_P(On, LogitsLossCuda, ::testing::Values(Dtype::bf16, Dtype::f16),
                         [](const auto& tested) { return std::string(kernels::name_of(tested.param)); });

}  // namespace
}  // namespace longstride::test
