// Properties of training with what rows remember, of every model that remembers, on the CPU and on a GPU:
//   INSTANTIATE_TYPED_TEST_SUITE_P(DistanceAttention, StreamProperties, OnDevices<DistanceToy>, DeviceNames);
// It takes those of Toys<Config>::configs() (model_properties.h) that have states, and needs
//   static Config without_dropout(Config);
#pragma once
#include <gtest/gtest.h>

#include "datasets/objectives/kinds.h"
#include "framework/train/evaluate/evaluator.h"
#include "tests/support/stream_run.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/toys.h"

namespace longstride::test {

template <class C, Device D>
struct OnDevice {
  using Config = C;
  static constexpr Device device = D;
};
template <class C>
using OnDevices = ::testing::Types<OnDevice<C, Device::cpu>, OnDevice<C, Device::cuda>>;
struct DeviceNames {
  template <class T>
  static std::string GetName(int) {
    return T::device == Device::cpu ? "cpu" : "gpu_bf16";
  }
};

template <class T>
class StreamProperties : public ::testing::Test {
 protected:
  using Config = typename T::Config;

  void SetUp() override {
    if (T::device == Device::cuda && device_count() == 0) GTEST_SKIP() << "no GPU";
    for (NamedConfig<Config> toy : Toys<Config>::configs()) {
      if (!toy.config.remembers()) continue;
      toy.config.dropout = 0.3;
      toys_.push_back(toy);
    }
    ASSERT_FALSE(toys_.empty());
  }
  static std::unique_ptr<StreamRun> run_of(const TrainConfig& train, const Config& config, std::int64_t steps = 0) {
    auto run = std::make_unique<StreamRun>(train, config, T::device);
    run->step.start();
    run->go(steps);
    return run;
  }

  std::vector<NamedConfig<Config>> toys_;
};
TYPED_TEST_SUITE_P(StreamProperties);

// Products of other numbers of rows may be rounded differently; the masks are the same.
TYPED_TEST_P(StreamProperties, MicroBatchesChangeWhatRowsRememberByRoundingAlone) {
  for (const auto& [name, config] : this->toys_) {
    const std::vector<double> whole = this->run_of(stream_training(4, still), config, 3)->values();
    EXPECT_TRUE(std::any_of(whole.begin(), whole.end(), [](double x) { return x != 0; }));
    const double rounding = TypeParam::device == Device::cpu ? 1e-5 : 0x1p-5;
    for (const std::int64_t micro : {2, 1}) {
      const std::vector<double> parts = this->run_of(stream_training(micro, still), config, 3)->values();
      for (std::size_t i = 0; i < whole.size(); ++i)
        ASSERT_NEAR(parts[i], whole[i], rounding * (1 + std::abs(whole[i]))) << name << " " << micro << " " << i;
    }
  }
}

TYPED_TEST_P(StreamProperties, RecomputeChangesNoBit) {
  for (const auto& [name, config] : this->toys_) {
    std::string stored;
    for (const auto& policy : Toys<typename TypeParam::Config>::recompute_policies(config)) {
      const std::string bits = this->run_of(stream_training(2), policy, 8)->bits();
      if (stored.empty()) stored = bits;
      EXPECT_TRUE(bits == stored) << name;
    }
  }
}

TYPED_TEST_P(StreamProperties, ARunResumedInMidStreamEndsInTheSameBits) {
  for (const auto& [name, config] : this->toys_) {
    const std::string straight = this->run_of(stream_training(), config, 9)->bits();
    for (const std::int64_t at : {1, 4, 5, 7}) {
      const testing::TemporaryDirectory directory;
      const auto first = this->run_of(stream_training(), config, at);
      first->save(directory.path());
      StreamRun second(stream_training(), config, TypeParam::device);
      second.step.resume(directory.path());
      EXPECT_TRUE(second.remembered() == first->remembered()) << name << " " << at;
      second.go(9 - at);
      EXPECT_TRUE(second.bits() == straight) << name << " " << at;
    }
  }
}

// Steps that are replayed as a graph, and steps that are not.
TYPED_TEST_P(StreamProperties, AGraphChangesNoBit) {
  if (TypeParam::device == Device::cpu) GTEST_SKIP() << "the CPU has no graphs";
  for (const auto& [name, config] : this->toys_) {
    TrainConfig by_kernels = stream_training(2);
    by_kernels.graph = false;
    EXPECT_TRUE(this->run_of(stream_training(2), config, 8)->bits() == this->run_of(by_kernels, config, 8)->bits())
        << name;
  }
}

// Near: on a GPU what is remembered has been rounded to bf16, as everything that it is made of.
TYPED_TEST_P(StreamProperties, RowsRememberWhatTheyDoOnTheCpu) {
  if (TypeParam::device == Device::cpu) GTEST_SKIP() << "this is the CPU";
  for (const auto& [name, config] : this->toys_) {
    const std::vector<double> found = this->run_of(stream_training(2, still), config, 3)->values();
    StreamRun on_cpu(stream_training(2, still), config);
    on_cpu.step.start();
    on_cpu.go(3);
    const std::vector<double> expected = on_cpu.values();
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_NEAR(found[i], expected[i], 0.05 * (1 + std::abs(expected[i]))) << name << " " << i;
  }
}

TYPED_TEST_P(StreamProperties, NothingIsRememberedWhereAStreamStarts) {
  for (const auto& [name, dropping] : this->toys_) {
    const auto config = Toys<typename TypeParam::Config>::without_dropout(dropping);  // masks depend on the step
    const auto once = this->run_of(stream_training(0, still), config, 1),
               around = this->run_of(stream_training(0, still), config, 1 + windows_of_stream);
    EXPECT_TRUE(around->remembered() == once->remembered()) << name;
    once->go(1);
    EXPECT_TRUE(around->remembered() != once->remembered()) << name;
  }
}

TYPED_TEST_P(StreamProperties, StepsAndEvaluationsTakeThePlannedMemory) {
  for (const auto& [name, config] : this->toys_)
    for (const auto& policy : Toys<typename TypeParam::Config>::recompute_policies(config)) {
      const auto run = this->run_of(stream_training(2), policy, 3);
      const EvaluationConfig validation = validation_config(run->train, run->step.batching(), config.context);
      evaluate(*run->model, default_objective(), run->step.context(), Text(300), validation, run->comm);
      const MemoryPlan& plan = run->step.plan();
      EXPECT_EQ(plan.states, 2 * run->train.global_batch * run->model->states().row_bytes({plan.compute, Dtype::f32}))
          << name;
      EXPECT_EQ(static_cast<std::int64_t>(run->step.state().bytes()), plan.block()) << name;
      EXPECT_EQ(static_cast<std::int64_t>(run->step.state().used_bytes()), plan.block()) << name;
    }
}

TYPED_TEST_P(StreamProperties, AnEvaluationLeavesTheMemoryOfTrainingAlone) {
  for (const auto& [name, config] : this->toys_) {
    const auto run = this->run_of(stream_training(2), config, 2), without = this->run_of(stream_training(2), config, 2);
    const EvaluationConfig validation = validation_config(run->train, run->step.batching(), config.context);
    evaluate(*run->model, default_objective(), run->step.context(), Text(300), validation, run->comm);
    EXPECT_TRUE(run->bits() == without->bits()) << name;
    for (StreamRun* r : {run.get(), without.get()}) r->go(2);
    EXPECT_TRUE(run->bits() == without->bits()) << name;
  }
}

// Memories of the positions up to a byte are the same to the bit, whatever follows.
TYPED_TEST_P(StreamProperties, NothingLooksAhead) {
  for (const auto& [name, config] : this->toys_) {
    const std::int64_t changed = config.context / 2;
    const auto run = this->run_of(stream_training(2, still), config, 2),
               other = this->run_of(stream_training(2, still), config, 2);
    std::vector<std::uint8_t> block(run->step.state().layout().bytes());
    const Batch batch = run->step.state().layout().at(block.data());
    run->source->read(2, run->train.global_batch, 0, batch);
    run->step.run(block.data());
    for (std::int64_t r = 0; r < batch.rows(); ++r)
      for (std::int64_t i = changed; i < config.context; ++i) {
        batch.targets.template as<std::uint8_t>()[r * config.context + i] ^= 0x55;
        if (i > changed) batch.tokens.template as<std::uint8_t>()[r * config.context + i] ^= 0x55;
      }
    other->step.run(block.data());
    StreamRun::States before = run->states(), after = other->states();
    for (const State& state : run->model->states().all()) {
      if (state.shape.rank != 2) continue;
      if (state.name.ends_with(".compressed_memory")) {  // made of earlier segments
        EXPECT_TRUE(before.bytes_of(state) == after.bytes_of(state)) << name;
        continue;
      }
      const Tensor a = before.rows().now(state), b = after.rows().now(state);
      const std::int64_t known = state.shape[0] - config.context + changed + 1;
      for (std::int64_t r = 0; r < batch.rows(); ++r) {
        const auto row = [&](const Tensor& t, std::int64_t begin, std::int64_t end) {
          const Tensor part = t.slice(0, r, r + 1).slice(1, begin, end);
          return std::string(part.as<const char>(), part.bytes());
        };
        const std::int64_t later = std::max<std::int64_t>(known, 0);
        EXPECT_TRUE(row(a, 0, later) == row(b, 0, later)) << name << " " << state.name << " " << r;
        EXPECT_TRUE(row(a, later, state.shape[0]) != row(b, later, state.shape[0])) << name << " " << state.name;
      }
    }
  }
}

REGISTER_TYPED_TEST_SUITE_P(StreamProperties, MicroBatchesChangeWhatRowsRememberByRoundingAlone, RecomputeChangesNoBit,
                            ARunResumedInMidStreamEndsInTheSameBits, AGraphChangesNoBit, RowsRememberWhatTheyDoOnTheCpu,
                            NothingIsRememberedWhereAStreamStarts, StepsAndEvaluationsTakeThePlannedMemory,
                            AnEvaluationLeavesTheMemoryOfTrainingAlone, NothingLooksAhead);

}  // namespace longstride::test
