// Training and evaluation of a model that remembers, on rows that are read in order.
#include <gtest/gtest.h>

#include <cmath>

#include "datasets/dataset.h"
#include "framework/train/evaluate/evaluator.h"
#include "framework/train/step/training_step.h"
#include "tests/echo_model/echo.h"
#include "tests/support/save_checkpoint.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/toy_model.h"

namespace longstride::test {
namespace {

constexpr std::int64_t context = 13, rows = 4, windows = 5;  // of a row's stream

class Text : public SequenceSet {
 public:
  explicit Text(std::int64_t bytes) : bytes_(toy_tokens(bytes)) {}
  std::int64_t sequences() const override { return 1; }
  std::int64_t length(std::int64_t) const override { return static_cast<std::int64_t>(bytes_.size()); }
  void read(std::int64_t, std::int64_t offset, std::int64_t length, std::uint8_t* out) const override {
    std::copy_n(bytes_.begin() + offset, length, out);
  }

 private:
  std::vector<std::uint8_t> bytes_;
};

EchoConfig echo_config(bool recompute = false) {
  EchoConfig c;
  c.context = context;
  c.width = 8;
  c.layers = 2;
  c.delay = 4;
  c.dropout = 0.3;
  c.recompute = recompute;
  return c;
}

// With a rate of 0 in effect, what rows remember follows from the data alone.
TrainConfig train_config(std::int64_t micro = 0, double lr = 1e-2) {
  TrainConfig c;
  c.steps = 20;
  c.global_batch = rows;
  c.micro_batch = micro;
  c.lr = lr;
  c.weight_decay = 0;
  c.warmup = 2;
  return c;
}
constexpr double still = 1e-37;

struct EchoRun {
  explicit EchoRun(const TrainConfig& settings, const EchoConfig& config = echo_config(), Device device = Device::cpu)
      : train(settings),
        model(config),
        comm(make_single_communicator()),
        source(make_stream_source(std::make_shared<Text>(rows * (windows * context + 7)), context, rows, "text")),
        step(model, train, *comm, device) {}

  void go(std::int64_t steps) {
    const BatchLayout& layout = step.state().layout();
    std::vector<std::uint8_t> block(layout.bytes());
    for (const std::int64_t end = step.step() + steps; step.step() < end;) {
      source->read(step.step(), rows, 0, layout.at(block.data()));
      step.run(block.data());
    }
  }
  std::vector<float> values() {
    const Tensor& now = step.state().states.all_now();
    std::vector<float> host(static_cast<std::size_t>(now.count()));
    step.report();
    step.queue().copy_to_host(host.data(), now.data(), now.bytes());
    step.queue().synchronize();
    return host;
  }
  std::string remembered() {
    const std::vector<float> host = values();
    return {reinterpret_cast<const char*>(host.data()), host.size() * sizeof(float)};
  }
  std::string bits() {
    std::string all = remembered();
    step.with_host_tensors([&](const TrainingTensors& t) {
      for (const Tensor& flat : {t.masters, t.m, t.v}) all.append(flat.as<char>(), flat.bytes());
    });
    return all;
  }
  void save(const std::string& run) {
    CheckpointState state;
    step.describe(step.report(), state);
    step.with_host_tensors([&](const TrainingTensors& t) { save_checkpoint(run, state, t, 0); });
  }

  TrainConfig train;
  Echo model;
  std::unique_ptr<Communicator> comm;
  std::unique_ptr<BatchSource> source;
  TrainingStep step;
};

class OnADevice : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (GetParam() == Device::cuda && device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};
INSTANTIATE_TEST_SUITE_P(RowsThatRemember, OnADevice, ::testing::Values(Device::cpu, Device::cuda),
                         [](const auto& i) { return std::string(i.param == Device::cpu ? "cpu" : "gpu_bf16"); });

TEST_P(OnADevice, MicroBatchesChangeNoBitOfTheMemory) {
  std::string whole;
  for (const std::int64_t micro : {4, 2, 1}) {
    EchoRun run(train_config(micro, still), echo_config(), GetParam());
    run.step.start();
    run.go(3);
    if (micro == 4) whole = run.remembered();
    EXPECT_TRUE(run.remembered() == whole) << micro;
  }
  EXPECT_TRUE(whole != std::string(whole.size(), '\0'));
}

TEST_P(OnADevice, RecomputeChangesNoBit) {
  EchoRun stored(train_config(2), echo_config(), GetParam()),
      recomputed(train_config(2), echo_config(true), GetParam());
  for (EchoRun* run : {&stored, &recomputed}) {
    run->step.start();
    run->go(8);
  }
  EXPECT_TRUE(recomputed.bits() == stored.bits());
}

TEST_P(OnADevice, ARunResumedInMidStreamEndsInTheSameBits) {
  EchoRun straight(train_config(), echo_config(), GetParam());
  straight.step.start();
  straight.go(9);
  for (const std::int64_t at : {1, 4, 5, 7}) {
    const testing::TemporaryDirectory directory;
    EchoRun first(train_config(), echo_config(), GetParam()), second(train_config(), echo_config(), GetParam());
    first.step.start();
    first.go(at);
    first.save(directory.path());
    second.step.resume(directory.path());
    EXPECT_TRUE(second.remembered() == first.remembered()) << at;
    second.go(9 - at);
    EXPECT_TRUE(second.bits() == straight.bits()) << at;
  }
}

// Steps that are replayed as a graph, and steps that are not.
TEST_P(OnADevice, AGraphChangesNoBitAndRemembersWhatTheCpuDoes) {
  TrainConfig by_kernels = train_config(2);
  by_kernels.graph = false;
  EchoRun replayed(train_config(2), echo_config(), GetParam()), plain(by_kernels, echo_config(), GetParam());
  for (EchoRun* run : {&replayed, &plain}) {
    run->step.start();
    run->go(8);
  }
  EXPECT_TRUE(replayed.bits() == plain.bits());
  EchoRun here(train_config(2, still), echo_config(), GetParam()), on_cpu(train_config(2, still));
  for (EchoRun* run : {&here, &on_cpu}) {
    run->step.start();
    run->go(3);
  }
  const std::vector<float> found = here.values(), expected = on_cpu.values();
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 0.05) << i;
}

TEST(RowsThatRemember, NothingIsRememberedWhereAStreamStarts) {
  EchoConfig config = echo_config();
  config.dropout = 0;  // whose masks are functions of the step
  EchoRun once(train_config(0, still), config), around(train_config(0, still), config);
  for (EchoRun* run : {&once, &around}) run->step.start();
  once.go(1);
  around.go(1 + windows);
  EXPECT_TRUE(around.remembered() == once.remembered());
  once.go(1);
  EXPECT_TRUE(around.remembered() != once.remembered());
}

TEST(RowsThatRemember, AStepTakesThePlannedMemory) {
  for (const bool recompute : {false, true}) {
    EchoRun run(train_config(2), echo_config(recompute));
    run.step.start();
    run.go(2);
    const MemoryPlan& plan = run.step.plan();
    EXPECT_EQ(plan.states, 2 * rows * 2 * 64 * static_cast<std::int64_t>(sizeof(float)));  // 2 layers of 4 x 8, padded
    EXPECT_EQ(static_cast<std::int64_t>(run.step.state().bytes()), plan.block());
    EXPECT_EQ(static_cast<std::int64_t>(run.step.state().used_bytes()), plan.block());
  }
}

TEST(RowsThatRemember, AnEvaluationLeavesTheMemoryOfTrainingAlone) {
  EchoRun run(train_config(2)), without(train_config(2));
  for (EchoRun* r : {&run, &without}) {
    r->step.start();
    r->go(2);
  }
  const EvaluationConfig config = validation_config(run.train, run.step.batching(), context);
  evaluate(run.model, run.step.context(), Text(300), config, *run.comm);
  EXPECT_TRUE(run.bits() == without.bits());
  for (EchoRun* r : {&run, &without}) r->go(2);
  EXPECT_TRUE(run.bits() == without.bits());
}

TEST(RowsThatRemember, ACheckpointOfOtherRowsIsRefused) {
  const testing::TemporaryDirectory directory;
  EchoRun first(train_config());
  first.step.start();
  first.go(2);
  first.save(directory.path());
  EchoConfig longer = echo_config();
  longer.delay = 5;
  EchoRun other(train_config(), longer);
  EXPECT_THROW(other.step.resume(directory.path()), UserError);
}

// Windows in order, with what is remembered, are one long sequence.
double nats_of(std::int64_t window, std::int64_t streams, std::int64_t batch, std::int64_t bytes) {
  EchoConfig config = echo_config();
  config.context = window;
  ToyModel<float> toy(config);
  toy.randomise();
  EvaluationConfig evaluation;
  evaluation.context = window;
  evaluation.batch = batch;
  evaluation.streams = streams;
  const auto comm = make_single_communicator();
  std::vector<std::byte> memory(evaluation_bytes(toy.model(), toy.context(), evaluation) + Arena::alignment);
  void* base = memory.data();
  std::size_t space = memory.size();
  std::align(Arena::alignment, 1, base, space);
  Arena arena(base, space / Arena::alignment * Arena::alignment);
  Context ctx = toy.context();
  ctx.arena = &arena;
  const EvaluationResult result = evaluate(toy.model(), ctx, Text(bytes), evaluation, *comm);
  EXPECT_EQ(result.bytes, bytes);
  return result.nats;
}

TEST(RowsThatRemember, AnEvaluationInOrderIsThatOfOneLongSequence) {
  constexpr std::int64_t bytes = 7 * context + 5;
  const double whole = nats_of(bytes, 1, 1, bytes);
  EXPECT_NEAR(nats_of(context, 1, 1, bytes), whole, 1e-5 * whole);
  EXPECT_GT(std::abs(nats_of(context, 8, 8, bytes) - whole), 1e-3 * whole) << "every window by itself";
}

TEST(RowsThatRemember, TheFigureDependsOnStreamsNotOnHowManyAreReadAtOnce) {
  constexpr std::int64_t bytes = 7 * context + 5;
  const double side_by_side = nats_of(context, 3, 3, bytes);
  EXPECT_NEAR(nats_of(context, 3, 1, bytes), side_by_side, 1e-6 * side_by_side);
  EXPECT_NEAR(nats_of(context, 3, 2, bytes), side_by_side, 1e-6 * side_by_side);
}

}  // namespace
}  // namespace longstride::test
