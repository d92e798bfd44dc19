// The loss of rows that a block reads, and targets and scores of bands, compared with the CPU's.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/bands/bands.h"
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

TEST(EmulatedBands, TargetsAreTheCpus) {
  cuda::emulation = {1, 2};
  constexpr std::int64_t rows = 600;
  std::vector<std::uint16_t> targets, places(rows), expected(rows);
  std::vector<float> weights, asked(rows), expected_asked(rows);
  for (std::int64_t r = 0; r < rows; ++r) {
    targets.push_back(static_cast<std::uint16_t>(r * 7));
    weights.push_back(static_cast<float>(r % 5));
  }
  for (int band = 0; band < 4; ++band) {
    BandTargetsArgs args{.targets = {targets.data(), Dtype::u16, {rows}},
                         .weights = {weights.data(), Dtype::f32, {rows}},
                         .places = {places.data(), Dtype::u16, {rows}},
                         .asked = {asked.data(), Dtype::f32, {rows}},
                         .edges = {{10, 700, 701}, 3},
                         .band = band};
    cuda::band_targets(args, {});
    args.places = {expected.data(), Dtype::u16, {rows}};
    args.asked = {expected_asked.data(), Dtype::f32, {rows}};
    cpu::band_targets(args, {});
    EXPECT_EQ(places, expected) << band;
    EXPECT_EQ(asked, expected_asked) << band;
  }
}

TEST(EmulatedBands, ScoresAreTheCpus) {
  cuda::emulation = {1, 2};
  for (const std::int64_t ids : {1, 77, 1003}) {
    constexpr std::int64_t rows = 5, clusters = 3, apart = 1100;
    std::vector<float> x, of_clusters, y(rows * apart, 9), expected = y;
    const auto drawn = [&](std::size_t i, std::uint32_t stream) {
      return 8 * uniform_of(philox(3, i, stream, domain_of(Purpose::test, 0)).word[0]);
    };
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows * ids); ++i) x.push_back(static_cast<float>(drawn(i, 1)));
    for (std::size_t i = 0; i < rows * clusters; ++i) of_clusters.push_back(static_cast<float>(drawn(i, 2)));
    BandScoresArgs args{.x = {x.data(), Dtype::f32, {rows, ids}},
                        .clusters = {of_clusters.data(), Dtype::f32, {rows, clusters}},
                        .y = Tensor(y.data(), Dtype::f32, {rows, apart}).slice(1, 3, 3 + ids),
                        .cluster = 2};
    cuda::band_scores(args, {});
    args.y = Tensor(expected.data(), Dtype::f32, {rows, apart}).slice(1, 3, 3 + ids);
    cpu::band_scores(args, {});
    for (std::size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected[i], 1e-5) << ids << " at " << i;
  }
}

}  // namespace
}  // namespace longstride::kernels
