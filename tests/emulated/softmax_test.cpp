// The loss of rows that a block reads, compared with the CPU's in double.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/philox.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"

namespace longstride::kernels {
namespace {

TEST(EmulatedSoftmax, LossesOfLongRowsAreTheCpus) {
  cuda::emulation = {1, 2};
  for (const std::int64_t vocabulary : {1025, 5003}) {
    const std::int64_t rows = 3;
    std::vector<float> logits, losses(rows), weights = {1, 0.5f, 2};
    for (std::int64_t i = 0; i < rows * vocabulary; ++i)
      logits.push_back(static_cast<float>(
          16 * uniform_of(philox(3, static_cast<std::uint64_t>(i), 0, domain_of(Purpose::test, 0)).word[0])));
    std::vector<double> exact(logits.begin(), logits.end()), exact_losses(rows), exact_gradient(exact.size());
    std::vector<std::uint16_t> targets = {0, 1024, 700};
    std::vector<std::uint8_t> right(rows), exact_right(rows);
    SoftmaxCrossEntropyArgs args{.logits = {logits.data(), Dtype::f32, {rows, vocabulary}},
                                 .targets = {targets.data(), Dtype::u16, {rows}},
                                 .losses = {losses.data(), Dtype::f32, {rows}},
                                 .gradient = {logits.data(), Dtype::f32, {rows, vocabulary}},  // in their place
                                 .scale = 0.25,
                                 .weights = {weights.data(), Dtype::f32, {rows}},
                                 .right = {right.data(), Dtype::u8, {rows}}};
    cuda::softmax_cross_entropy(args, {});
    args.logits = {exact.data(), Dtype::f64, {rows, vocabulary}};
    args.losses = {exact_losses.data(), Dtype::f64, {rows}};
    args.gradient = {exact_gradient.data(), Dtype::f64, {rows, vocabulary}};
    args.right = {exact_right.data(), Dtype::u8, {rows}};
    cpu::softmax_cross_entropy(args, {});
    for (std::size_t r = 0; r < losses.size(); ++r) EXPECT_NEAR(losses[r], exact_losses[r], 1e-4) << vocabulary;
    for (std::size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(logits[i], exact_gradient[i], 1e-6) << vocabulary;
    EXPECT_EQ(right, exact_right);
  }
}

}  // namespace
}  // namespace longstride::kernels
