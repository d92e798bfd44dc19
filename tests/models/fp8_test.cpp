// Models whose linear layers multiply 8-bit operands, on the CPU, where these are emulated.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/distance_toys.h"
#include "tests/support/toy_model.h"

namespace longstride::test {
namespace {

constexpr std::int64_t batch = 3;

// Every form of a block, attention by pattern and with a distance term.
std::vector<NamedConfig<DecoderConfig>> all_configs() {
  std::vector<NamedConfig<DecoderConfig>> all = toy_configs();
  all.push_back({"spans", spans_config()});
  return all;
}

template <class T>
std::vector<T> gradients(const DecoderConfig& config, bool fp8) {
  ToyModel<T> toy(config);
  toy.model().parameters().initialise(1);
  toy.context().fp8_products = fp8;
  toy.loss_and_gradients(toy_tokens(batch * config.context), batch);
  EXPECT_EQ(toy.planned(), toy.used());
  return toy.gradients();
}

template <class A, class B>
double distance(const std::vector<A>& a, const std::vector<B>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += (static_cast<double>(a[i]) - static_cast<double>(b[i])) *
           (static_cast<double>(a[i]) - static_cast<double>(b[i]));
  return std::sqrt(sum);
}

template <class T>
double size_of(const std::vector<T>& a) {
  return distance(a, std::vector<T>(a.size(), T{0}));
}

// The rounding of one factor changes it by at most 1/16 in e4m3 and 1/8 in e5m2; over the many terms of a gradient such
// errors cancel in part. Far less than this share, as in fp32, would mean that nothing was rounded.
TEST(Fp8Model, GradientsAreThoseOfTheExactModelUpToRounding) {
  for (const auto& [name, config] : all_configs()) {
    const std::vector<double> exact = gradients<double>(config, false);
    const std::vector<float> rounded = gradients<float>(config, true);
    const double share = distance(rounded, exact) / size_of(exact);
    EXPECT_LE(share, 0x1p-3) << name;
    EXPECT_GE(share, 1e-4) << name;
  }
}

// Scales depend on what is multiplied alone, so a second forward pass has the bits of the first.
TEST(Fp8Model, RecomputeGivesTheSameBits) {
  DecoderConfig config = toy_configs()[1].config;
  config.layers = 3;
  const std::vector<float> stored = gradients<float>(config, true);
  for (const Recompute recompute : {Recompute::selective, Recompute::block, Recompute::attention_and_feed_forward}) {
    config.recompute = recompute;
    EXPECT_EQ(gradients<float>(config, true), stored);
  }
}

// The losses of 60 steps along the gradient, with and without 8-bit operands, of a model that learns its batch. Steps
// are small enough that the loss falls steadily; with larger ones any rounding leads to another path.
TEST(Fp8Model, LearnsAsFastAsWithoutRounding) {
  const DecoderConfig config = toy_config();
  const std::vector<std::uint8_t> tokens = toy_tokens(batch * config.context);
  const auto losses = [&](bool fp8) {
    ToyModel<float> toy(config);
    toy.model().parameters().initialise(1);
    toy.context().fp8_products = fp8;
    std::vector<double> out;
    for (int step = 0; step < 60; ++step) {
      std::fill(toy.gradients().begin(), toy.gradients().end(), 0.0f);
      out.push_back(toy.loss_and_gradients(tokens, batch) / static_cast<double>(tokens.size()));
      for (std::size_t i = 0; i < toy.values().size(); ++i) toy.values()[i] -= 0.0005f * toy.gradients()[i];
    }
    return out;
  };
  const std::vector<double> exact = losses(false), rounded = losses(true);
  const double learnt = exact.front() - exact.back();
  EXPECT_GT(learnt, 0.4);
  for (std::size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(rounded[i], exact[i], 0.01 * learnt) << "step " << i;
}

}  // namespace
}  // namespace longstride::test
