// Encoders on the GPU, compared with the CPU: every mixer, global rows, labels and the contrast.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/gpu/trained.h"
#include "tests/models/encoder_toys.h"

namespace longstride::test::encoders_test {
namespace {

std::vector<NamedConfig<EncoderConfig>> configs() {
  std::vector<NamedConfig<EncoderConfig>> all = encoder_toys();
  for (auto& [name, config] : encoder_toys())
    if (config.global.of_groups && name == "etc") {
      config.contrast = 0.3;
      all.push_back({"contrast", config});
    }
  return all;
}

// Takes the steps, each with rows of its own in groups of several lengths.
void go(Trained& run, const EncoderConfig& config, std::int64_t steps) {
  const BatchLayout& layout = run.step.state().layout();
  const std::vector<std::int64_t> ends = {0, 4, 5, 11, 18, config.context};
  const std::vector<std::uint16_t> classes = {1, 0, 1, 1, 0};
  std::vector<std::uint8_t> block(layout.bytes());
  const Batch batch = layout.at(block.data());
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::int64_t r = 0; r < run.train.global_batch; ++r) {
      const std::int64_t number = step * run.train.global_batch + r;
      const std::vector<std::uint8_t> bytes = toy_tokens(config.context, 100 + static_cast<std::uint64_t>(number));
      std::vector<std::uint32_t> labels(static_cast<std::size_t>(config.objective->labels()), 1);
      if (config.objective->kind() == std::string("spans")) labels[1] = 9;
      RowBytes of{.bytes = bytes.data(), .groups = {ends, 0}, .labels = labels, .group_labels = classes};
      if (config.documents.padded && r % 2 == 1) of.length = 13;
      config.objective->write_row_of(batch, r, of, {run.train.seed, number});
    }
    run.step.run(block.data());
  }
}

TEST(EncodersOnTheGpu, FollowTheCpu) {
  LONGSTRIDE_NEEDS_GPU();
  for (const auto& [name, config] : configs()) {
    SCOPED_TRACE(name);
    const TrainConfig train = train_config(Precision::fp32);
    Trained cpu(train, Device::cpu, config), gpu(train, Device::cuda, config);
    for (Trained* run : {&cpu, &gpu}) {
      run->step.start();
      go(*run, config, 3);
    }
    EXPECT_NEAR(gpu.step.report().loss, cpu.step.report().loss, 1e-4 * cpu.step.report().loss);
    EXPECT_EQ(gpu.step.report().auxiliary.size(), cpu.step.report().auxiliary.size());
    for (std::size_t i = 0; i < gpu.step.report().auxiliary.size(); ++i)
      EXPECT_NEAR(gpu.step.report().auxiliary[i], cpu.step.report().auxiliary[i], 1e-4);
    const std::vector<float> found = gpu.gradients(), wanted = cpu.gradients();
    double apart = 0, size = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double a = static_cast<double>(found[i]), b = static_cast<double>(wanted[i]);
      apart += (a - b) * (a - b);
      size += b * b;
    }
    EXPECT_LE(std::sqrt(apart), 1e-3 * std::sqrt(size));
  }
}

TEST(EncodersOnTheGpu, RecomputePoliciesAndRepetitionGiveTheSameBits) {
  LONGSTRIDE_NEEDS_GPU();
  for (const auto& [name, config] : configs()) {
    SCOPED_TRACE(name);
    const TrainConfig train = train_config(Precision::bf16);
    std::string first;
    std::vector<EncoderConfig> policies = Toys<EncoderConfig>::recompute_policies(config);
    policies.push_back(config);
    for (const EncoderConfig& policy : policies) {
      Trained run(train, Device::cuda, policy);
      run.step.start();
      go(run, policy, 3);
      EXPECT_TRUE(std::isfinite(run.step.report().loss));
      if (first.empty()) first = run.bits();
      EXPECT_TRUE(same_bits(run.bits(), first));
    }
  }
}

}  // namespace
}  // namespace longstride::test::encoders_test
