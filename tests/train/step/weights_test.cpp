// Losses with weights: their mean is over the weights of the whole global batch.
#include <gtest/gtest.h>

#include <cmath>

#include "framework/train/step/training_step.h"
#include "tests/support/toy_model.h"

namespace longstride::test::weights_test {
namespace {

constexpr std::int64_t rows = 4;

// A decoder with ids beyond bytes whose positions have weights.
class Weighted : public Decoder {
 public:
  using Decoder::Decoder;
  BatchFields fields() const override {
    BatchFields fields = Decoder::fields();
    fields.weights = true;
    return fields;
  }
};

DecoderConfig config_of(std::int64_t vocabulary) {
  DecoderConfig config = toy_config();
  config.vocabulary = vocabulary;
  config.dropout = 0.2;
  return config;
}

struct WeightedRun {
  WeightedRun(std::int64_t micro, std::int64_t vocabulary = ids::all)
      : model(config_of(vocabulary)),
        comm(make_single_communicator()),
        train(config(micro)),
        step(model, train, *comm, Device::cpu) {
    step.start();
  }
  static TrainConfig config(std::int64_t micro) {
    TrainConfig c;
    c.steps = 20;
    c.global_batch = rows;
    c.micro_batch = micro;
    c.lr = 1e-2;
    c.warmup = 1;
    return c;
  }
  // Weight (row, position) is `weight(row)`; every tenth token is a mask.
  template <class Weight>
  void go(Weight&& weight) {
    const BatchLayout& layout = step.state().layout();
    std::vector<std::uint8_t> block(layout.bytes());
    const Batch batch = layout.at(block.data());
    const std::int64_t seq = model.context();
    const std::vector<std::uint8_t> text = toy_tokens(rows * seq, 9 + static_cast<std::uint64_t>(step.step()));
    for (std::int64_t r = 0; r < rows; ++r) {
      write_row(batch, r, text.data() + r * seq, 0, true);
      for (std::int64_t i = 0; i < seq; ++i) batch.weights.as<float>()[r * seq + i] = weight(r);
    }
    for (std::int64_t i = 0; i < rows * seq && batch.tokens.dtype() == Dtype::u16; i += 10)
      batch.tokens.as<std::uint16_t>()[i] = static_cast<std::uint16_t>(ids::mask);
    step.run(block.data());
  }
  std::vector<float> weights() const {
    const Tensor& t = const_cast<TrainingStep&>(step).state().batch.weights;
    return {t.as<float>(), t.as<float>() + t.count()};
  }
  std::vector<float> gradient() {
    const Tensor& t = step.state().gradients;
    return {t.as<float>(), t.as<float>() + t.count()};
  }

  Weighted model;
  std::unique_ptr<Communicator> comm;
  TrainConfig train;
  TrainingStep step;
};

float half_of_the_rows(std::int64_t r) { return r % 2 == 0 ? 1.0f : 0.0f; }

// Weights are divided by the sum over the step, not over a micro-batch, some of which have none at all.
TEST(Weights, HaveTheSameBitsForAnyMicroBatch) {
  std::vector<float> whole;
  for (const std::int64_t micro : {4, 2, 1}) {
    WeightedRun run(micro);
    run.go(half_of_the_rows);
    if (micro == 4) whole = run.weights();
    EXPECT_EQ(run.weights(), whole) << micro;
  }
  double sum = 0;
  for (const float w : whole) sum += static_cast<double>(w);
  EXPECT_NEAR(sum, 1, 1e-6);
}

// The first loss is the logarithm of the vocabulary, whatever the weights.
TEST(Weights, GiveAMeanLoss) {
  for (const float scale : {0.25f, 1.0f, 3.0f}) {
    WeightedRun run(2);
    run.go([&](std::int64_t r) { return scale * half_of_the_rows(r); });
    EXPECT_NEAR(run.step.report().loss, std::log(260.0), 1e-5);
  }
}

TEST(Weights, OfOneGiveTheGradientOfNone) {
  WeightedRun weighted(2, 256);
  weighted.go([](std::int64_t) { return 1.0f; });
  Decoder model(config_of(256));
  const auto comm = make_single_communicator();
  TrainingStep plain(model, WeightedRun::config(2), *comm, Device::cpu);
  plain.start();
  plain.run(toy_tokens(rows * model.context(), 9).data());
  const std::vector<float> found = weighted.gradient();
  const auto* expected = plain.state().gradients.as<const float>();
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-6) << i;
  EXPECT_NEAR(weighted.step.report().loss, plain.report().loss, 1e-6);
}

TEST(Weights, OfZeroEverywhereChangeNothing) {
  WeightedRun run(4);
  run.go([](std::int64_t) { return 0.0f; });
  EXPECT_EQ(run.step.report().loss, 0);
  for (const float g : run.gradient()) ASSERT_EQ(g, 0);
}

TEST(Weights, AndWideIdsTakeThePlannedMemory) {
  WeightedRun run(1);
  run.go(half_of_the_rows);
  EXPECT_EQ(static_cast<std::int64_t>(run.step.state().used_bytes()), run.step.plan().block());
}

}  // namespace
}  // namespace longstride::test::weights_test
