// Training with Muon: its memory is planned, and a resumed run ends in the same bits as an uninterrupted one.
#include <omp.h>

#include <set>

#include "framework/optim/muon.h"
#include "tests/train/trained.h"

namespace longstride::test::muon_test {
namespace {

TrainConfig train_config() {
  TrainConfig c;
  c.steps = 20;
  c.global_batch = 4;
  c.lr = 1e-2;
  c.warmup = 2;
  c.ema = 0.9;
  c.optimizer = OptimizerKind::muon;
  return c;
}

DecoderConfig wide_config() {
  DecoderConfig c = toy_config();
  c.context = 3;  // so that Muon needs more scratch than the activations
  c.layers = 1;
  c.width = 160;
  return c;
}

TEST(MuonTraining, UpdatesEveryMatrixOfTheLayersAndNoOther) {
  Decoder model(toy_config());
  std::set<std::int64_t> begins;
  for (const HiddenMatrix& m : hidden_matrices(model.parameters())) begins.insert(m.begin);
  EXPECT_EQ(begins.size(), 2u * 6u);  // two layers: queries, keys, values, output, inner, outer
  for (const Parameter& p : model.parameters().all())
    EXPECT_EQ(begins.contains(p.offset), p.name.starts_with("layers.") && p.shape.rank == 2) << p.name;
}

TEST(MuonTraining, AResumedRunEndsInTheSameBits) {
  const testing::TemporaryDirectory directory;
  Trained straight(train_config(), toy_config()), first(train_config(), toy_config());
  Trained second(train_config(), toy_config());
  for (Trained* run : {&straight, &first}) run->step.start();
  straight.go(6);
  first.go(4);
  first.save(directory.path());
  second.step.resume(directory.path());
  second.go(2);
  EXPECT_EQ(second.bits(), straight.bits());
  TrainConfig adam = train_config();
  adam.optimizer = OptimizerKind::adam;
  Trained other(adam, toy_config());
  other.step.start();
  other.go(6);
  EXPECT_NE(other.bits(), straight.bits());
}

TEST(MuonTraining, TakesExactlyThePlannedMemory) {
  omp_set_num_threads(2);  // many threads take more scratch in the backward pass than Muon does afterwards
  for (const auto& config : {toy_config(), wide_config()}) {
    TrainConfig train = train_config();
    train.micro_batch = 1;
    Trained run(train, config);
    run.step.start();
    run.go(1);
    EXPECT_EQ(static_cast<std::int64_t>(run.step.state().arena().high_water()), run.step.plan().activations);
    train.optimizer = OptimizerKind::adam;
    Decoder model(config);
    const std::int64_t adam = plan_memory(model, train, 1).activations;
    EXPECT_EQ(run.step.plan().activations > adam, config.width == 160);
  }
}

}  // namespace
}  // namespace longstride::test::muon_test
