// Training on several ranks equals training on one: every rank also trains alone, and compares. On the CPU, or on one
// GPU per rank if LONGSTRIDE_TEST_DEVICE is gpu (label multi_gpu).
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "datasets/objectives/kinds.h"
#include "framework/comm/watchdog/watchdog.h"
#include "framework/train/evaluate/evaluator.h"
#include "framework/train/run/file_work.h"
#include "framework/train/step/training_step.h"
#include "tests/distributed/devices.h"
#include "tests/support/sanitized.h"
#include "tests/support/scan_toys.h"
#include "tests/support/toy_model.h"

namespace longstride::testing {
namespace {

// Four layers, several buckets, and heads and positions that two, three or four ranks divide.
DecoderConfig model_config(kernels::Integration integration = kernels::Integration::merged) {
  DecoderConfig c;
  c.context = 84;
  c.layers = 4;
  c.heads = world().size() == 3 ? 3 : 4;
  c.width = 16 * c.heads;
  c.dropout = 0.1;
  c.attention.integration = integration;
  c.attention.parts = {kernels::PartKind::fixed_block, kernels::PartKind::fixed_summary};
  c.attention.stride = 16;
  c.attention.summary = {4};
  c.attention.distinct_heads = true;
  return c;
}

// Three rows a rank: with micro-batches of one row there is a first, a last, and one between them.
TrainConfig train_config(Precision precision = Precision::fp32) {
  TrainConfig c;
  c.steps = 30;
  c.global_batch = 3 * world().size();
  c.lr = 1e-3;
  c.warmup = 5;
  c.ema = 0.9;
  c.precision = precision;
  c.seed = 11;
  c.parallel.bucket = 20000;
  return c;
}

struct Trained {
  Trained(const TrainConfig& settings, Communicator& ranks, const ModelConfig& config = model_config())
      : train(settings), made(config.make_model()), model(*made), comm(ranks), step(model, train, comm, device()) {
    step.start();
  }
  void go(std::int64_t steps) {
    for (const std::int64_t end = step.step() + steps; step.step() < end;) {
      const StepShape shape = step.shape_at(step.step());
      const auto rows = test::toy_tokens(shape.positions(), 100 + static_cast<std::uint64_t>(step.step()));
      step.run(rows.data() + step.first_row_of(shape) * shape.context);
    }
  }
  // Every bit of what a checkpoint would hold, without the padding, which depends on the number of ranks.
  std::string bits() {
    std::string all;
    step.with_host_tensors([&](const TrainingTensors& t) {
      for (const Tensor& flat : {t.masters, t.m, t.v, t.ema}) {
        if (!flat.given()) continue;
        for (const Parameter& p : model.parameters().all())
          all.append(reinterpret_cast<const char*>(flat.as<const float>() + p.offset),
                     static_cast<std::size_t>(p.shape.count()) * sizeof(float));
      }
      all.append(t.factors.as<const char>(), t.factors.bytes());
    });
    return all;
  }
  // The last step's gradients, as averaged; the optimizer is not sharded.
  std::vector<float> gradients() {
    const Tensor& flat = step.state().gradients;
    std::vector<float> host(static_cast<std::size_t>(flat.count())), all;
    step.report();
    step.queue().copy_to_host(host.data(), flat.data(), flat.bytes());
    step.queue().synchronize();
    for (const Parameter& p : model.parameters().all())
      all.insert(all.end(), host.begin() + p.offset, host.begin() + p.offset + p.shape.count());
    return all;
  }

  TrainConfig train;
  std::unique_ptr<Model> made;
  Model& model;
  Communicator& comm;
  TrainingStep step;
};

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += d * d;
  }
  return std::sqrt(sum);
}

class TrainingOnRanks : public OnRanks {};

// Compares training on one rank with training on all, for some steps.
void expect_one_ranks_training(const TrainConfig& train, Communicator& alone, const DecoderConfig& config,
                               int most = 10) {
  TrainConfig single = train;
  single.parallel = {};
  Trained one(single, alone, config), all(train, world(), config);
  const int steps = test::sanitized && train.stages.empty() ? 3 : most;  // stages begin at steps 2 and 5
  for (int i = 0; i < steps; ++i) {
    one.go(1);
    all.go(1);
    const StepReport a = one.step.report(), b = all.step.report();
    ASSERT_NEAR(b.loss, a.loss, 1e-5 * a.loss) << "step " << i;
    EXPECT_NEAR(b.scalars.gradient_norm, a.scalars.gradient_norm, 1e-4 * a.scalars.gradient_norm) << "step " << i;
    if (i > 0) continue;
    const std::vector<float> expected = one.gradients();
    EXPECT_LE(distance(all.gradients(), expected), 1e-5 * distance(expected, std::vector<float>(expected.size())));
  }
}

// Steps, where only the model is another, and every step exchanges the same; and where optimizers gather a state.
constexpr int exchanges_alike = 2, some_updates = 5;

TEST_F(TrainingOnRanks, LossesAndGradientsAreThoseOfOneRank) {
  TrainConfig train = train_config();
  expect_one_ranks_training(train, *alone_, model_config(), some_updates);
  train.micro_batch = 1;
  expect_one_ranks_training(train, *alone_, model_config(), some_updates);
}

DecoderConfig spans_of_four_heads() {
  DecoderConfig c = test::spans_config();
  c.heads = 4;
  c.width = 64;
  c.distance.span.loss = 1;
  return c;
}

// The loss of spans counts once per step, whatever the ranks and micro-batches.
TEST_F(TrainingOnRanks, LearnedSpansAndTheirLossAreThoseOfOneRank) {
  TrainConfig train = train_config();
  train.lr = 0.02;  // spans pass both ends of their interval
  for (const std::int64_t micro : {0, 1}) {
    train.micro_batch = micro;
    expect_one_ranks_training(train, *alone_, spans_of_four_heads());
    TrainConfig single = train;
    single.parallel = {};
    Trained one(single, *alone_, spans_of_four_heads()), all(train, world(), spans_of_four_heads());
    for (int i = 0; i < 3; ++i) {
      for (Trained* run : {&one, &all}) run->go(1);
      const double loss = one.step.report().auxiliary.at(0);
      EXPECT_NEAR(all.step.report().auxiliary.at(0), loss, 1e-4 * loss) << i;
    }
  }
}

class WeightedDecoder : public Decoder {
 public:
  using Decoder::Decoder;
  BatchFields fields() const override { return {.weights = true}; }
};

struct WeightedStep {
  std::vector<float> weights;  // weights of this rank's rows, as divided
  double loss = 0;
};

// Rows whose weights are 0, 1 and 2, and of which some ranks have more than others.
WeightedStep weighted_step(Communicator& comm) {
  WeightedDecoder model(model_config());
  TrainConfig train = train_config();
  train.global_batch = 12;
  TrainingStep step(model, train, comm, device());
  step.start();
  const BatchLayout& layout = step.state().layout();
  std::vector<std::uint8_t> block(layout.bytes());
  const Batch rows = layout.at(block.data());
  const std::int64_t first = comm.rank() * rows.rows(), seq = model.context();
  for (std::int64_t r = 0; r < rows.rows(); ++r) {
    write_row(rows, r, test::toy_tokens(seq, 300 + static_cast<std::uint64_t>(first + r)).data(), 0, true);
    for (std::int64_t i = 0; i < seq; ++i)
      rows.weights.as<float>()[r * seq + i] = static_cast<float>(first + r < 2 ? 0 : (first + r + i) % 3);
  }
  step.run(block.data());
  WeightedStep out;
  out.loss = step.report().loss;
  out.weights.resize(static_cast<std::size_t>(rows.weights.count()));
  const Tensor& divided = step.state().batch.weights;
  step.queue().copy_to_host(out.weights.data(), divided.data(), divided.bytes());
  step.queue().synchronize();
  return out;
}

TEST_F(TrainingOnRanks, WeightsAreDividedByTheirSumOverAllRanks) {
  const WeightedStep one = weighted_step(*alone_), all = weighted_step(world());
  const auto mine = one.weights.begin() + world().rank() * std::ssize(all.weights);
  EXPECT_TRUE(std::equal(all.weights.begin(), all.weights.end(), mine));
  EXPECT_NEAR(all.loss, one.loss, 1e-5 * one.loss);
}

TEST_F(TrainingOnRanks, StagesOfGrowingContextAreThoseOfOneRank) {
  TrainConfig train = train_config();
  constexpr int two_in_the_last = 7;
  train.stages = {{2, 21}, {5, 42}};
  expect_one_ranks_training(train, *alone_, model_config(), two_in_the_last);
  const int size = world().size();
  train.stages = {{2, 20, 0, 9 * size, 3}, {5, 50, 5e-4, 6 * size}};  // with batches of their own
  expect_one_ranks_training(train, *alone_, model_config(), two_in_the_last);
}

TEST_F(TrainingOnRanks, ShardingChangesNoBitOfSpansAtTheirLimits) {
  TrainConfig train = train_config();
  train.lr = 0.5;
  Trained whole(train, world(), spans_of_four_heads());
  train.parallel.shard = true;
  Trained sharded(train, world(), spans_of_four_heads());
  for (Trained* run : {&whole, &sharded}) run->go(6);
  EXPECT_TRUE(sharded.bits() == whole.bits());
  sharded.step.with_host_tensors([&](const TrainingTensors& t) {
    for (const Parameter& p : sharded.model.parameters().all())
      if (p.limits)
        for (const Tensor& flat : {t.masters, t.ema})
          for (std::int64_t i = 0; i < p.shape.count(); ++i) {
            const float z = flat.as<const float>()[p.offset + i];
            EXPECT_TRUE(z >= 0 && z <= 1) << p.name << " " << z;
          }
  });
}

TEST_F(TrainingOnRanks, MuonIsOneRanksMuonAndLeavesAllRanksTheSameWeights) {
  TrainConfig train = train_config();
  train.optimizer = OptimizerKind::muon;
  expect_one_ranks_training(train, *alone_, model_config(), some_updates);
  Trained run(train, world());
  run.go(3);
  const std::string mine = run.bits();
  std::string first = mine;
  world().broadcast(first.data(), static_cast<std::int64_t>(first.size()), 0);
  EXPECT_TRUE(first == mine);
}

TEST_F(TrainingOnRanks, DividedSequencesGiveTheLossesAndGradientsOfOneRank) {
  for (int context = 2; context <= world().size(); ++context) {
    if (world().size() % context != 0) continue;
    for (auto integration :
         {kernels::Integration::merged, kernels::Integration::interleaved, kernels::Integration::multihead})
      for (Recompute recompute : {Recompute::none, Recompute::selective, Recompute::block}) {
        if (recompute == Recompute::block && integration != kernels::Integration::merged) continue;
        SCOPED_TRACE(::testing::Message() << context << " ranks per sequence, integration " << int(integration));
        DecoderConfig config = model_config(integration);
        config.recompute = recompute;
        TrainConfig train = train_config();
        train.parallel.sequence_ranks = context;
        expect_one_ranks_training(train, *alone_, config, exchanges_alike);
        if (recompute == Recompute::none) continue;
        config.positions = Positions::none;  // and what else depends on positions in the whole sequence
        config.rotary_base = 10000;
        config.query_key_norm = true;
        expect_one_ranks_training(train, *alone_, config, exchanges_alike);
      }
  }
}

TEST_F(TrainingOnRanks, DividedScansGiveTheLossesAndGradientsOfOneRank) {
  TrainConfig train = train_config();
  train.parallel.sequence_ranks = world().size();
  for (auto& [name, config] : test::divided_scans(model_config(), world().size()))
    for (const Recompute recompute : {Recompute::none, Recompute::selective}) {
      SCOPED_TRACE(name);
      config.recompute = recompute;
      expect_one_ranks_training(train, *alone_, config, exchanges_alike);
    }
}

// A tied table is exchanged once its gradient has come from both ends; the masks of a post-norm stream are the same.
TEST_F(TrainingOnRanks, OtherFormsOfBlocksGiveTheLossesAndGradientsOfOneRank) {
  for (const auto& [name, config] : test::forms_and_bands_of(model_config())) {
    if (name != "transformer_xl" && name != "geglu" && name != "adaptive_narrower") continue;  // others exchange alike
    for (const int sequence_ranks : {1, world().size()}) {
      SCOPED_TRACE(::testing::Message() << name << ", " << sequence_ranks << " ranks per sequence");
      TrainConfig train = train_config();
      train.parallel.sequence_ranks = sequence_ranks;
      expect_one_ranks_training(train, *alone_, config, exchanges_alike);
    }
  }
}

TEST_F(TrainingOnRanks, AShardedOptimizerGivesTheSameBits) {
  std::vector<Precision> precisions = {Precision::fp32};
  if (on_gpus()) precisions = {Precision::fp32, Precision::bf16, Precision::fp16};
  for (Precision precision : precisions)
    for (int context : {1, world().size()}) {
      TrainConfig train = train_config(precision);
      train.parallel.sequence_ranks = context;
      Trained whole(train, world());
      train.parallel.shard = true;
      Trained sharded(train, world()), again(train, world());
      for (Trained* run : {&whole, &sharded, &again}) run->go(some_updates);
      EXPECT_EQ(sharded.step.report().scalars.gradient_norm, whole.step.report().scalars.gradient_norm);
      const std::string bits = whole.bits();
      EXPECT_TRUE(sharded.bits() == bits) << context << " ranks per sequence";
      EXPECT_TRUE(again.bits() == bits) << context << " ranks per sequence";
      EXPECT_LE(sharded.step.plan().optimizer, whole.step.plan().optimizer / world().size() + 4096);
    }
}

// The norm of a tensor that ranks share is that of the whole tensor.
TEST_F(TrainingOnRanks, AdagradWithALimitPerTensorGivesTheSameBitsSharded) {
  TrainConfig train = train_config();
  train.optimizer = OptimizerKind::adagrad;
  train.epsilon = 1e-10;
  train.tensor_clip = 0.01;
  expect_one_ranks_training(train, *alone_, model_config(), some_updates);
  Trained whole(train, world());
  train.parallel.shard = true;
  Trained sharded(train, world());
  for (Trained* run : {&whole, &sharded}) run->go(some_updates);
  const std::string bits = whole.bits();
  EXPECT_TRUE(sharded.bits() == bits);
  train.tensor_clip = 0;
  Trained unlimited(train, world());
  unlimited.go(some_updates);
  EXPECT_FALSE(unlimited.bits() == bits) << "the limit is never reached";
}

TEST_F(TrainingOnRanks, AdafactorIsThatOfOneRankAndLeavesAllRanksTheSameWeights) {
  TrainConfig train = train_config();
  train.optimizer = OptimizerKind::adafactor;
  train.epsilon = 1e-30;
  train.beta1 = 0;
  expect_one_ranks_training(train, *alone_, model_config(), some_updates);
  Trained run(train, world());
  run.go(3);
  const std::string mine = run.bits();
  std::string first = mine;
  world().broadcast(first.data(), static_cast<std::int64_t>(first.size()), 0);
  EXPECT_TRUE(first == mine);
}

TEST_F(TrainingOnRanks, ExchangingDuringOrAfterTheBackwardPassGivesTheSameBits) {
  for (const bool shard : {false, true}) {
    TrainConfig train = train_config();
    train.parallel.shard = shard;
    train.parallel.overlap = Overlap::always;
    Trained during(train, world());
    train.parallel.overlap = Overlap::never;
    Trained after(train, world());
    during.go(5);
    after.go(5);
    EXPECT_TRUE(during.bits() == after.bits()) << shard;
  }
}

TEST_F(TrainingOnRanks, EveryRankHasTheSameWeights) {
  TrainConfig train = train_config();
  Trained run(train, world());
  run.go(5);
  std::string bits = run.bits(), first = bits;
  world().broadcast(first.data(), static_cast<std::int64_t>(first.size()), 0);
  EXPECT_TRUE(bits == first);
}

TEST_F(TrainingOnRanks, LowPrecisionGradientsStayNearThoseOfOneRank) {
  if (!on_gpus()) GTEST_SKIP() << "the CPU averages in fp32";
  for (Precision precision : {Precision::bf16, Precision::fp16}) {
    const TrainConfig train = train_config(precision);
    Trained one(train, *alone_), all(train, world());
    for (int i = 0; i < 10; ++i) {
      one.go(1);
      all.go(1);
      EXPECT_NEAR(all.step.report().loss, one.step.report().loss, 1e-3 * one.step.report().loss) << "step " << i;
    }
  }
}

// One rank's gradient overflows the type in which gradients are exchanged: no rank updates anything.
TEST_F(TrainingOnRanks, AnOverflowIsSkippedOnEveryRankAlike) {
  if (!on_gpus()) GTEST_SKIP() << "the CPU has no loss scale";
  TrainConfig train = train_config(Precision::fp16);
  for (bool shard : {false, true}) {
    train.parallel.shard = shard;
    Trained run(train, world());
    run.go(2);
    const float huge = 0x1p40f;
    if (world().rank() == 0)
      run.step.queue().copy_to_device(
          run.step.state().optimizer.scalars.as<char>() + offsetof(kernels::OptimizerScalars, loss_scale), &huge,
          sizeof(huge));
    const std::string before = run.bits();
    run.go(1);
    EXPECT_EQ(run.step.report().scalars.skipped_in_row, 1);
    EXPECT_TRUE(run.bits() == before);
  }
}

TEST_F(TrainingOnRanks, ExchangingAloneChangesNoBit) {
  TrainConfig train = train_config();
  Trained without(train, *alone_);
  train.parallel.exchange_alone = true;
  Trained with(train, *alone_);
  train.parallel.shard = true;
  Trained sharded(train, *alone_);
  for (Trained* run : {&without, &with, &sharded}) run->go(6);
  EXPECT_TRUE(with.bits() == without.bits());
  EXPECT_TRUE(sharded.bits() == without.bits());
}

TEST_F(TrainingOnRanks, TakesExactlyThePlannedMemory) {
  std::int64_t last = 0;
  for (int context = 1; context <= world().size(); ++context) {
    if (world().size() % context != 0) continue;
    TrainConfig train = train_config();
    train.micro_batch = 1;
    train.parallel.sequence_ranks = context;
    train.parallel.shard = true;
    Trained run(train, world());
    run.go(2);
    run.step.report();
    EXPECT_EQ(static_cast<std::int64_t>(run.step.state().bytes()), run.step.plan().block());
    EXPECT_EQ(static_cast<std::int64_t>(run.step.state().arena().high_water()), run.step.plan().activations);
    if (context > 1) {
      EXPECT_LT(run.step.plan().activations, last);
    }
    last = run.step.plan().activations;
  }
}

class Texts : public SequenceSet {
 public:
  std::int64_t sequences() const override { return 3; }
  std::int64_t length(std::int64_t s) const override { return 83 + 61 * s; }  // windows that no number of ranks divides
  void read(std::int64_t s, std::int64_t offset, std::int64_t length, std::uint8_t* out) const override {
    const auto all = test::toy_tokens(300, 20 + static_cast<std::uint64_t>(s));
    std::copy_n(all.begin() + offset, length, out);
  }
};

TEST_F(TrainingOnRanks, EvaluationInAGroupGivesTheFigureOfOneRank) {
  TrainConfig train = train_config();
  Trained one(train, *alone_);
  train.parallel.sequence_ranks = world().size();
  Trained all(train, world());
  EvaluationConfig config = validation_config(train, all.step.batching(), all.model.context());
  config.min_context = 20;
  const EvaluationResult a = evaluate(one.model, default_objective(), one.step.context(), Texts(), config, *alone_);
  const EvaluationResult b = evaluate(all.model, default_objective(), all.step.context(), Texts(), config, world());
  EXPECT_EQ(b.bytes, a.bytes);
  EXPECT_NEAR(b.scored.loss(), a.scored.loss(), 1e-5 * a.scored.loss());
}

// One rank was asked to stop; the others, which may have fewer windows, stop in the same round.
TEST_F(TrainingOnRanks, AnEvaluationIsAbandonedOnAllRanksOrNone) {
  Trained all(train_config(), world());
  EvaluationConfig config{84, 0, 1, 0};
  const int asked = world().size() - 1;
  for (const int rounds : {1, 2, 1000}) {
    int round = 0;
    const EvaluationResult result = evaluate(all.model, default_objective(), all.step.context(), Texts(), config,
                                             world(), {}, [&] { return ++round == rounds && world().rank() == asked; });
    EXPECT_EQ(result.abandoned, rounds < (6 + world().size() - 1) / world().size()) << rounds;  // six in all
    EXPECT_EQ(result.bytes == 0, result.abandoned);
  }
}

// Rank 0 waits for its disk three times as long as a rank may hang.
TEST(FileWorkOnRanks, IsNoHang) {
  Watchdog watchdog(world(), 0.4);
  const FileWorkWatch watch(world());
  watchdog.expect_progress(true);
  if (world().rank() == 0) {
    const FileWork work("metrics.jsonl");
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  }
  world().barrier();
  watchdog.expect_progress(false);
  watchdog.leave();
}

TEST(Batching, SaysWhatCannotBeDivided) {
  TrainConfig train = train_config();
  train.global_batch = 12;
  train.parallel.sequence_ranks = 3;
  EXPECT_THROW(divide_batch(train, 4), UserError);
  train.parallel.sequence_ranks = 2;
  EXPECT_EQ(divide_batch(train, 4).per_rank, 6);
  EXPECT_EQ(divide_batch(train, 4).micro, 1);
  train.micro_batch = 2;
  EXPECT_THROW(divide_batch(train, 4), UserError);
  DecoderConfig config = model_config();
  EXPECT_THROW(Decoder(config).check_group(5), UserError);
}

}  // namespace
}  // namespace longstride::testing
