// Training with other optimizers than Adam: losses fall, memory is less than Adam's, checkpoints are their own.
#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "framework/optim/muon.h"
#include "tests/train/trained.h"

namespace longstride::test::optimizers_test {
namespace {

struct Case {
  const char* name;
  OptimizerKind kind;
  double tensor_clip, beta1;
};

constexpr Case cases[] = {{"adagrad", OptimizerKind::adagrad, 0, 0.9},
                          {"adagrad_tensor_clip", OptimizerKind::adagrad, 0.01, 0.9},
                          {"adafactor", OptimizerKind::adafactor, 0, 0},
                          {"adafactor_momentum", OptimizerKind::adafactor, 0, 0.9}};

TrainConfig train_config(const Case& c, std::int64_t micro = 0) {
  TrainConfig t;
  t.steps = 20;
  t.global_batch = 4;
  t.micro_batch = micro;
  t.lr = 1e-2;
  t.warmup = 2;
  t.ema = 0.9;
  t.optimizer = c.kind;
  t.tensor_clip = c.tensor_clip;
  t.beta1 = c.beta1;
  t.epsilon = c.kind == OptimizerKind::adagrad ? 1e-10 : 1e-30;
  return t;
}

class Optimizers : public ::testing::TestWithParam<Case> {};

std::string name_of(const ::testing::TestParamInfo<Case>& test) { return test.param.name; }

// Weights that are infinite for one step make its gradient so.
TEST(SkippedSteps, AreNotCountedByTheOptimizerAfterResumingEither) {
  for (const Case& c : {Case{"adam", OptimizerKind::adam, 0, 0.9}, Case{"adafactor", OptimizerKind::adafactor, 0, 0}}) {
    const testing::TemporaryDirectory directory;
    const TrainConfig config = train_config(c);
    Trained first(config, toy_config()), second(config, toy_config());
    first.step.start();
    first.go(1);
    const Tensor masters = first.step.state().masters;
    const std::vector<float> good(masters.as<float>(), masters.as<float>() + masters.count());
    std::fill_n(masters.as<float>(), masters.count(), std::numeric_limits<float>::infinity());
    first.go(1);
    std::copy(good.begin(), good.end(), masters.as<float>());
    EXPECT_EQ(first.step.report().scalars.finite, 0);
    EXPECT_EQ(first.save(directory.path()).skipped, 1);
    second.step.resume(directory.path());
    EXPECT_EQ(second.step.report().scalars.skipped, 1);
    for (Trained* run : {&first, &second}) run->go(2);
    EXPECT_EQ(second.bits(), first.bits()) << c.name;
  }
}

TEST_P(Optimizers, TheLossFallsOnOneBatch) {
  TrainConfig config = train_config(GetParam(), 2);
  config.scale_parameter = false;               // or the output, which starts at zero, would hardly move
  if (config.tensor_clip > 0) config.lr = 0.1;  // most of which the limit takes away
  Trained run(config, toy_config());
  run.step.start();
  const std::vector<std::uint8_t> tokens = toy_tokens(4 * run.model.context(), 1);
  run.step.run(tokens.data());
  const double begin = run.step.report().loss;
  for (int i = 0; i < 12; ++i) run.step.run(tokens.data());
  EXPECT_LT(run.step.report().loss, begin - 0.05);
}

TEST_P(Optimizers, TakesLessMemoryThanAdam) {
  TrainConfig config = train_config(GetParam(), 1);
  Decoder model(toy_config());
  const MemoryPlan plan = plan_memory(model, config, 1);
  config.optimizer = OptimizerKind::adam;
  config.tensor_clip = 0;
  const MemoryPlan adam = plan_memory(model, config, 1);
  EXPECT_LT(static_cast<double>(plan.optimizer),
            0.75 * static_cast<double>(adam.optimizer));  // the toy's matrices are small
  EXPECT_LT(plan.snapshot, adam.snapshot);
}

TEST_P(Optimizers, ACheckpointOfAnotherKindIsRefused) {
  const testing::TemporaryDirectory directory;
  TrainConfig config = train_config(GetParam());
  Trained run(config, toy_config());
  run.step.start();
  run.go(1);
  run.save(directory.path());
  config.optimizer = OptimizerKind::adam;
  config.tensor_clip = 0;
  Trained adam(config, toy_config());
  EXPECT_THROW(adam.step.resume(directory.path()), UserError);
}

TEST(MuonTraining, UpdatesEveryMatrixOfTheLayersAndNoOther) {
  Decoder model(toy_config());
  std::set<std::int64_t> begins;
  for (const HiddenMatrix& m : hidden_matrices(model.parameters())) begins.insert(m.begin);
  EXPECT_EQ(begins.size(), 2u * 6u);  // two layers: queries, keys, values, output, inner, outer
  for (const Parameter& p : model.parameters().all())
    EXPECT_EQ(begins.contains(p.offset), p.name.starts_with("layers.") && p.shape.rank == 2) << p.name;
}

INSTANTIATE_TEST_SUITE_P(Kinds, Optimizers, ::testing::ValuesIn(cases), name_of);

}  // namespace
}  // namespace longstride::test::optimizers_test
