// Every way of training: a resumed run ends in the same bits as one that was not stopped, and takes the planned memory.
#include "tests/train/ways.h"

namespace longstride::test {
namespace {

struct Way {
  const char* name;
  TrainConfig train;
  DecoderConfig model;
};

Way optimizer(const char* name, OptimizerKind kind, double tensor_clip = 0, double beta1 = 0.9) {
  TrainConfig train = way_config(4);
  train.optimizer = kind;
  train.tensor_clip = tensor_clip;
  train.beta1 = beta1;
  if (kind == OptimizerKind::adagrad) train.epsilon = 1e-10;
  if (kind == OptimizerKind::adafactor) train.epsilon = 1e-30;
  return {name, train, toy_config()};
}

std::vector<Way> ways() {
  TrainConfig staged = way_config(4, 1), rates = way_config(4);
  staged.stages = {{3, 12}, {5, 24}};
  rates.stages = {{2, 12, 4e-3}, {4, 12, 2e-3}, {6, 48, 5e-3}};
  DecoderConfig wide = toy_config();  // Muon needs more scratch than the activations
  wide.context = 3;
  wide.layers = 1;
  wide.width = 160;
  Way wide_muon = optimizer("muon_wide", OptimizerKind::muon);
  wide_muon.model = wide;
  return {optimizer("adam", OptimizerKind::adam),
          optimizer("muon", OptimizerKind::muon),
          wide_muon,
          optimizer("adagrad", OptimizerKind::adagrad),
          optimizer("adagrad_tensor_clip", OptimizerKind::adagrad, 0.01),
          optimizer("adafactor", OptimizerKind::adafactor, 0, 0),
          optimizer("adafactor_momentum", OptimizerKind::adafactor),
          {"spans", way_config(4), spans_config()},
          {"bands", way_config(4, 1), bands_of(toy_config())[1].config},
          {"stages", staged, staged_model()},
          {"rates", rates, staged_model()},
          {"phases", phased(), phased_model()}};
}

class Ways : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Of, Ways, ::testing::ValuesIn(ways()), [](const auto& of) { return of.param.name; });

TEST_P(Ways, AResumedRunEndsInTheSameBits) {
  const auto& [_, train, model] = GetParam();
  Trained straight(train, model);
  straight.step.start();
  straight.go(7);
  const std::string before = straight.bits();
  straight.go(1);
  EXPECT_TRUE(straight.bits() != before);
  for (const std::int64_t at : {1, 2, 3, 5, 6}) {
    const testing::TemporaryDirectory directory;
    Trained first(train, model), second(train, model);
    first.step.start();
    first.go(at);
    EXPECT_EQ(first.save(directory.path()).tokens_seen, positions_before(train, at, model.context));
    second.step.resume(directory.path());
    second.go(8 - at);
    EXPECT_TRUE(second.bits() == straight.bits()) << at;
  }
}

TEST_P(Ways, TakesExactlyThePlannedMemoryAndNoLessThanItsLastStage) {
  for (const Recompute policy : {Recompute::none, Recompute::selective, Recompute::block}) {
    Way way = GetParam();
    way.model.recompute = policy;
    Trained run(way.train, way.model);
    run.step.start();
    run.go(7);
    run.step.report();
    const MemoryPlan& plan = run.step.plan();
    EXPECT_EQ(static_cast<std::int64_t>(run.step.state().bytes()), plan.block());
    EXPECT_EQ(static_cast<std::int64_t>(run.step.state().arena().high_water()), plan.activations);
    EXPECT_EQ(static_cast<std::int64_t>(run.step.state().arena().tape_high_water()), plan.tape);
    TrainConfig last = way.train;
    last.stages.clear();
    Decoder model(way.model);
    EXPECT_GE(plan.activations, plan_memory(model, last, 1).activations);
  }
}

}  // namespace
}  // namespace longstride::test
