// The optimizers on the GPU, within the training step, compared with the CPU's and with themselves run in other ways.
#include <gtest/gtest.h>

#include "framework/train/step/precision.h"
#include "tests/gpu/trained.h"

namespace longstride::test {
namespace {

// Muon's products are captured with the rest of the step, and computed in the step's compute type.
TEST(OptimizersOnTheGpu, MuonGivesTheSameBitsAsSingleKernelsAndFollowsTheCpu) {
  LONGSTRIDE_NEEDS_GPU();
  for (Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    TrainConfig train = train_config(precision);
    train.optimizer = OptimizerKind::muon;
    const std::string replayed = bits_after(6, train);
    EXPECT_TRUE(same_bits(bits_after(6, train), replayed)) << name_of(precision);
    train.graph = false;
    EXPECT_TRUE(same_bits(bits_after(6, train), replayed)) << name_of(precision);
    train.optimizer = OptimizerKind::adam;
    EXPECT_NE(bits_after(6, train), replayed) << name_of(precision);
  }
  TrainConfig train = train_config(Precision::fp32), narrow = train_config(Precision::bf16);
  train.optimizer = narrow.optimizer = OptimizerKind::muon;
  Trained cpu(train, Device::cpu), gpu(train, Device::cuda), low(narrow, Device::cuda);
  for (Trained* run : {&cpu, &gpu, &low}) run->step.start();
  for (int i = 0; i < 20; ++i) {
    for (Trained* run : {&cpu, &gpu, &low}) run->go(1);
    const double loss = cpu.step.report().loss;
    EXPECT_NEAR(gpu.step.report().loss, loss, 1e-4 * loss) << "step " << i;
    EXPECT_NEAR(low.step.report().loss, loss, 2e-2 * loss) << "step " << i;
  }
  EXPECT_EQ(static_cast<std::int64_t>(gpu.step.state().arena().high_water()), gpu.step.plan().activations);
}

TEST(OptimizersOnTheGpu, AdagradAndAdafactorGiveTheSameBitsAsSingleKernelsAndFollowTheCpu) {
  LONGSTRIDE_NEEDS_GPU();
  for (const OptimizerKind kind : {OptimizerKind::adagrad, OptimizerKind::adafactor}) {
    const auto config = [&](Precision precision) {
      TrainConfig train = train_config(precision);
      train.optimizer = kind;
      train.epsilon = kind == OptimizerKind::adagrad ? 1e-10 : 1e-30;
      train.tensor_clip = kind == OptimizerKind::adagrad ? 0.05 : 0;
      train.beta1 = 0;
      return train;
    };
    for (Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      TrainConfig train = config(precision);
      const std::string replayed = bits_after(6, train);
      EXPECT_TRUE(same_bits(bits_after(6, train), replayed)) << name_of(precision);
      train.graph = false;
      EXPECT_TRUE(same_bits(bits_after(6, train), replayed)) << name_of(precision);
    }
    Trained cpu(config(Precision::fp32), Device::cpu), gpu(config(Precision::fp32), Device::cuda);
    for (Trained* run : {&cpu, &gpu}) run->step.start();
    for (int i = 0; i < 20; ++i) {
      for (Trained* run : {&cpu, &gpu}) run->go(1);
      const double loss = cpu.step.report().loss;
      EXPECT_NEAR(gpu.step.report().loss, loss, 1e-4 * loss) << "step " << i;
    }
    EXPECT_EQ(static_cast<std::int64_t>(gpu.step.state().arena().high_water()), gpu.step.plan().activations);
  }
}

}  // namespace
}  // namespace longstride::test
