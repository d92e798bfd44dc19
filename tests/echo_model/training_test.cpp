// Training and evaluation of a model that remembers, on rows that are read in order.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/echo_model/toys.h"
#include "tests/support/stream_properties.h"
#include "tests/support/toy_evaluation.h"

namespace longstride::test {

INSTANTIATE_TYPED_TEST_SUITE_P(Echo, StreamProperties, OnDevices<EchoConfig>, DeviceNames);

namespace {

constexpr std::int64_t context = 13;

EchoConfig echo_config() {
  EchoConfig c;
  c.context = context;
  c.width = 8;
  c.layers = 2;
  c.delay = 4;
  c.dropout = 0.3;
  return c;
}

class OnOneDevice : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (GetParam() == Device::cuda && device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};
INSTANTIATE_TEST_SUITE_P(RowsThatRemember, OnOneDevice, ::testing::Values(Device::cpu, Device::cuda),
                         [](const auto& i) { return std::string(i.param == Device::cpu ? "cpu" : "gpu_bf16"); });

// The model's products are of one row each, however many there are.
TEST_P(OnOneDevice, MicroBatchesChangeNoBitOfTheMemory) {
  std::string whole;
  for (const std::int64_t micro : {4, 2, 1}) {
    StreamRun run(stream_training(micro, still), echo_config(), GetParam());
    run.step.start();
    run.go(3);
    if (micro == 4) whole = run.remembered();
    EXPECT_TRUE(run.remembered() == whole) << micro;
  }
  EXPECT_TRUE(whole != std::string(whole.size(), '\0'));
}

TEST(RowsThatRemember, ACheckpointOfOtherRowsIsRefused) {
  const testing::TemporaryDirectory directory;
  StreamRun first(stream_training(), echo_config());
  first.step.start();
  first.go(2);
  first.save(directory.path());
  EchoConfig longer = echo_config();
  longer.delay = 5;
  StreamRun other(stream_training(), longer);
  EXPECT_THROW(other.step.resume(directory.path()), UserError);
}

// Windows in order, with what is remembered, are one long sequence.
double nats_of(std::int64_t window, std::int64_t streams, std::int64_t batch, std::int64_t bytes,
               std::int64_t lead = 0) {
  EchoConfig config = echo_config();
  config.context = window;
  ToyModel<float> toy(config);
  toy.randomise();
  EvaluationConfig evaluation;
  evaluation.context = window;
  evaluation.batch = batch;
  evaluation.streams = streams;
  evaluation.lead = lead;
  return nats_of(toy, evaluation, bytes);
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

TEST(RowsThatRemember, AStreamThatReadsTheWholeTextBeforeItScoresLikeOneStream) {
  constexpr std::int64_t bytes = 7 * context + 5;
  const double whole = nats_of(context, 1, 1, bytes);
  for (const std::int64_t streams : {2, 3, 8})
    for (const std::int64_t batch : {std::int64_t{1}, streams})
      EXPECT_NEAR(nats_of(context, streams, batch, bytes, bytes), whole, 1e-6 * whole) << streams;
  const double next = nats_of(context, 8, 8, bytes, 1);
  EXPECT_EQ(next, nats_of(context, 8, 8, bytes, context)) << "whole windows are read";
  EXPECT_NE(next, nats_of(context, 8, 8, bytes));
}

}  // namespace
}  // namespace longstride::test
