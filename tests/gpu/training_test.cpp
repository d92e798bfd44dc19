// The training step on the GPU, compared with the CPU's and with itself run in other ways.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "datasets/objectives/kinds.h"
#include "framework/train/evaluate/evaluation_memory.h"
#include "framework/train/step/precision.h"
#include "tests/gpu/trained.h"
#include "tests/support/save_checkpoint.h"
#include "tests/support/temporary_directory.h"

namespace longstride::test {
namespace {

// Where the stream has the compute type, branches add their outputs to it, and their gradients have no tensors of their
// own.
DecoderConfig config_without_dropout() {
  DecoderConfig c = small_config();
  c.dropout = 0;
  return c;
}

// With the options beyond the paper: rotated and normalised queries and keys, no position tables.
DecoderConfig beyond_config() {
  DecoderConfig c = small_config();
  c.positions = Positions::none;
  c.rotary_base = 10000;
  c.query_key_norm = true;
  return c;
}

// The Sparse Transformer's form with and without dropout, every other form, and vocabularies in bands.
std::vector<DecoderConfig> forms() {
  std::vector<DecoderConfig> all = {small_config(), config_without_dropout()};
  for (const auto& form : forms_and_bands_of(small_config())) all.push_back(form.config);
  all.push_back(forms_of(config_without_dropout()).front().config);
  return all;
}

// The gradient of the first step in double, on the CPU.
std::vector<double> exact_gradients(const TrainConfig& train, const DecoderConfig& config) {
  ToyModel<double> toy(config);
  toy.model().parameters().initialise(train.seed);
  toy.context().seed = train.seed;
  const std::int64_t step = 0;
  toy.context().step = &step;
  std::vector<std::uint8_t> rows = rows_of(train, 0);
  toy.loss_and_gradients(rows, train.global_batch);
  std::vector<double> gradients = toy.gradients();
  for (double& g : gradients) g /= static_cast<double>(rows.size());
  return gradients;
}

double distance(const std::vector<float>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  return std::sqrt(sum);
}

double size_of(const std::vector<double>& a) { return distance(std::vector<float>(a.size(), 0.0f), a); }

TEST(TrainingOnTheGpu, Fp32GradientsAreAsExactAsOnTheCpu) {
  LONGSTRIDE_NEEDS_GPU();
  const TrainConfig train = train_config(Precision::fp32);
  for (const DecoderConfig& config : forms()) {
    Trained cpu(train, Device::cpu, config), gpu(train, Device::cuda, config);
    for (Trained* run : {&cpu, &gpu}) {
      run->step.start();
      run->go(1);
    }
    const std::vector<double> exact = exact_gradients(train, config);
    ASSERT_GT(size_of(exact), 0);
    EXPECT_LE(distance(gpu.gradients(), exact), 2 * distance(cpu.gradients(), exact)) << "dropout " << config.dropout;
  }
}

TEST(TrainingOnTheGpu, LowPrecisionGradientsStayWithinTheirRounding) {
  LONGSTRIDE_NEEDS_GPU();
  const std::tuple<Precision, Precision, double> cases[] = {{Precision::bf16, Precision::fp32, 0x1p-8},
                                                            {Precision::bf16, Precision::bf16, 0x1p-8},
                                                            {Precision::fp16, Precision::fp32, 0x1p-11}};
  for (const DecoderConfig& config : forms()) {
    const std::vector<double> exact = exact_gradients(train_config(Precision::fp32), config);
    for (const auto& [precision, residual, epsilon] : cases) {
      TrainConfig train = train_config(precision);
      train.residual = residual;
      Trained gpu(train, Device::cuda, config);
      gpu.step.start();
      gpu.go(1);
      std::vector<float> found = gpu.gradients();
      const float scale = gpu.step.report().scalars.loss_scale;
      for (float& g : found) g /= scale;
      EXPECT_LE(distance(found, exact), 8 * epsilon * size_of(exact))
          << name_of(precision) << ", residual stream in " << name_of(residual) << ", dropout " << config.dropout;
    }
  }
}

// The same bound as between numbers of ranks on the CPU (tests/distributed).
TEST(TrainingOnTheGpu, Fp32LossesFollowTheCpuForTwentySteps) {
  LONGSTRIDE_NEEDS_GPU();
  for (const DecoderConfig& config :
       {small_config(), small_config(kernels::Integration::interleaved), beyond_config()}) {
    const TrainConfig train = train_config(Precision::fp32);
    Trained cpu(train, Device::cpu, config), gpu(train, Device::cuda, config);
    for (Trained* run : {&cpu, &gpu}) run->step.start();
    for (int i = 0; i < 20; ++i) {
      for (Trained* run : {&cpu, &gpu}) run->go(1);
      const StepReport a = cpu.step.report(), b = gpu.step.report();
      EXPECT_NEAR(b.loss, a.loss, 1e-5 * a.loss) << "step " << i;
      EXPECT_DOUBLE_EQ(b.scalars.learning_rate, a.scalars.learning_rate);
      EXPECT_NEAR(b.scalars.gradient_norm, a.scalars.gradient_norm, 1e-4 * a.scalars.gradient_norm) << "step " << i;
    }
  }
}

TEST(TrainingOnTheGpu, TheGraphGivesTheSameBitsAsSingleKernels) {
  LONGSTRIDE_NEEDS_GPU();
  for (Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16})
    for (const DecoderConfig& config : {small_config(), config_without_dropout()}) {
      TrainConfig train = train_config(precision);
      const std::string replayed = bits_after(6, train, config);
      EXPECT_TRUE(same_bits(bits_after(6, train, config), replayed)) << name_of(precision);
      train.graph = false;
      EXPECT_TRUE(same_bits(bits_after(6, train, config), replayed)) << name_of(precision);
      EXPECT_NE(bits_after(5, train, config), replayed) << name_of(precision);
    }
}

// Every stage is captured again.
TEST(TrainingOnTheGpu, StagesGiveTheSameBitsAsSingleKernelsAndFollowTheCpu) {
  LONGSTRIDE_NEEDS_GPU();
  for (Precision precision : {Precision::fp32, Precision::bf16}) {
    TrainConfig train = train_config(precision);
    train.stages = {{4, 15}, {8, 25}};
    const std::string replayed = bits_after(12, train);
    train.graph = false;
    EXPECT_TRUE(same_bits(bits_after(12, train), replayed)) << name_of(precision);
    train.stages.pop_back();
    EXPECT_NE(bits_after(12, train), replayed) << name_of(precision);
  }
  TrainConfig train = train_config(Precision::fp32);
  train.stages = {{3, 15}, {6, 25}};
  Trained cpu(train, Device::cpu), gpu(train, Device::cuda);
  for (Trained* run : {&cpu, &gpu}) run->step.start();
  for (int i = 0; i < 9; ++i) {
    for (Trained* run : {&cpu, &gpu}) run->go(1);
    EXPECT_NEAR(gpu.step.report().loss, cpu.step.report().loss, 1e-5 * cpu.step.report().loss) << "step " << i;
  }
  EXPECT_EQ(static_cast<std::int64_t>(gpu.step.state().arena().high_water()), gpu.step.plan().activations);
}

TEST(TrainingOnTheGpu, RecomputePoliciesGiveTheSameBits) {
  LONGSTRIDE_NEEDS_GPU();
  const NamedConfig<DecoderConfig> configs[] = {{"with dropout", small_config()},
                                                {"without dropout", config_without_dropout()},
                                                {"beyond the paper", beyond_config()},
                                                forms_of(small_config()).front(),
                                                forms_of(config_without_dropout())[1]};
  for (const auto& [precision, residual] : {std::pair{Precision::fp32, Precision::fp32},
                                            {Precision::bf16, Precision::fp32},
                                            {Precision::bf16, Precision::bf16}})
    for (auto [name, config] : configs) {
      TrainConfig train = train_config(precision);
      train.residual = residual;
      const std::string stored = bits_after(4, train, config);
      for (Recompute recompute : {Recompute::selective, Recompute::block, Recompute::attention_and_feed_forward}) {
        config.recompute = recompute;
        EXPECT_TRUE(same_bits(bits_after(4, train, config), stored))
            << name << ", " << name_of(precision) << ", residual stream in " << name_of(residual) << ", recompute "
            << static_cast<int>(recompute);
      }
    }
}

TEST(TrainingOnTheGpu, AccumulationGivesTheSameGradientsToRounding) {
  LONGSTRIDE_NEEDS_GPU();
  TrainConfig train = train_config(Precision::fp32);
  Trained whole(train, Device::cuda);
  train.micro_batch = 1;
  Trained parts(train, Device::cuda);
  Trained on_cpu(train, Device::cpu);
  for (Trained* run : {&whole, &parts, &on_cpu}) {
    run->step.start();
    run->go(1);
  }
  const std::vector<double> exact = exact_gradients(train, small_config());
  EXPECT_LE(distance(parts.gradients(), exact), 2 * distance(on_cpu.gradients(), exact));
  EXPECT_NEAR(parts.step.report().loss, whole.step.report().loss, 1e-6 * whole.step.report().loss);
}

TEST(TrainingOnTheGpu, TakesExactlyThePlannedMemory) {
  LONGSTRIDE_NEEDS_GPU();
  for (Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16})
    for (Recompute recompute :
         {Recompute::none, Recompute::selective, Recompute::block, Recompute::attention_and_feed_forward}) {
      DecoderConfig config = recompute == Recompute::block       ? beyond_config()
                             : recompute == Recompute::selective ? config_without_dropout()
                                                                 : small_config();
      config.recompute = recompute;
      TrainConfig train = train_config(precision);
      train.micro_batch = 2;
      Decoder planned(config);
      const MemoryPlan plan = plan_memory(planned, train, 1, Device::cuda);
      Trained run(train, Device::cuda, config);
      run.step.start();
      run.go(3);
      run.step.report();
      EXPECT_EQ(static_cast<std::int64_t>(run.step.state().bytes()), plan.block());
      EXPECT_EQ(static_cast<std::int64_t>(run.step.state().arena().high_water()), plan.activations);
      EXPECT_EQ(static_cast<std::int64_t>(run.step.state().arena().tape_high_water()), plan.tape);
      EXPECT_EQ(plan.parameters > plan.gradients, precision != Precision::fp32);
    }
}

TEST(TrainingOnTheGpu, TheMeanLossIsThatOfStepsWithoutAReport) {
  LONGSTRIDE_NEEDS_GPU();
  const TrainConfig train = train_config(Precision::bf16);
  Trained run(train, Device::cuda), single(train, Device::cuda);
  run.step.start();
  single.step.start();
  for (const int steps : {1, 11, 3}) {
    run.go(steps);
    double sum = 0;
    for (int i = 0; i < steps; ++i) {
      single.go(1);
      sum += single.step.report().loss;
    }
    EXPECT_NEAR(run.step.take_mean_loss(), sum / steps, 1e-12) << steps;
  }
}

CheckpointState state_of(Trained& run) {
  const StepReport report = run.step.report();
  CheckpointState state;
  run.step.describe(report, state);
  return state;
}

TEST(TrainingOnTheGpu, AResumedRunEndsInTheSameBitsAsAnUninterruptedOne) {
  LONGSTRIDE_NEEDS_GPU();
  for (Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    const TrainConfig train = train_config(precision);
    const testing::TemporaryDirectory directory;
    Trained first(train, Device::cuda);
    first.step.start();
    first.go(4);
    const CheckpointState state = state_of(first);
    EXPECT_EQ(state.loss_scale.has_value(), precision == Precision::fp16);
    first.step.with_host_tensors([&](const TrainingTensors& t) { save_checkpoint(directory.path(), state, t, 0); });
    first.go(4);
    Trained second(train, Device::cuda);
    EXPECT_EQ(second.step.resume(directory.path()).step, 4);
    second.go(4);
    EXPECT_TRUE(same_bits(second.bits(), first.bits())) << name_of(precision);
  }
}

TEST(TrainingOnTheGpu, AGpuCheckpointResumesOnTheCpuAndBack) {
  LONGSTRIDE_NEEDS_GPU();
  const TrainConfig train = train_config(Precision::fp32);
  for (const auto& [from, to] : {std::pair{Device::cuda, Device::cpu}, std::pair{Device::cpu, Device::cuda}}) {
    const testing::TemporaryDirectory directory;
    Trained first(train, from), second(train, to);
    first.step.start();
    first.go(3);
    const CheckpointState state = state_of(first);
    first.step.with_host_tensors([&](const TrainingTensors& t) { save_checkpoint(directory.path(), state, t, 0); });
    second.step.resume(directory.path());
    EXPECT_TRUE(same_bits(second.bits(), first.bits()));
    for (Trained* run : {&first, &second}) run->go(1);
    EXPECT_NEAR(second.step.report().loss, first.step.report().loss, 1e-5 * first.step.report().loss);
  }
}

// The loss scale doubles until fp16 overflows; that step must change nothing but the scale.
TEST(TrainingOnTheGpu, AnOverflowedStepIsSkippedAndTheLossScaleHalved) {
  LONGSTRIDE_NEEDS_GPU();
  const TrainConfig train = train_config(Precision::fp16);
  const testing::TemporaryDirectory directory;
  Trained first(train, Device::cuda);
  first.step.start();
  EXPECT_EQ(first.step.report().scalars.loss_scale, 65536);
  first.go(2);
  CheckpointState state = state_of(first);
  state.loss_scale = 0x1p40;
  state.good_steps = 7;
  first.step.with_host_tensors([&](const TrainingTensors& t) { save_checkpoint(directory.path(), state, t, 0); });

  Trained run(train, Device::cuda);
  run.step.resume(directory.path());
  const std::string before = run.bits();
  for (int skipped = 1; skipped <= 3; ++skipped) {
    run.go(1);
    const StepReport report = run.step.report();
    EXPECT_EQ(report.scalars.loss_scale, std::ldexp(1.0f, 40 - skipped));
    EXPECT_EQ(report.scalars.skipped_in_row, skipped);
    EXPECT_EQ(report.scalars.good_steps, 0);
    EXPECT_TRUE(same_bits(run.bits(), before)) << "a skipped step changed the state";
  }
  run.go(25);  // the scale halves until the gradient fits, and training continues
  const StepReport report = run.step.report();
  EXPECT_EQ(report.scalars.skipped_in_row, 0);
  EXPECT_GE(report.scalars.skipped, 3);
  EXPECT_GT(report.scalars.good_steps, 0);
  EXPECT_LT(report.scalars.loss_scale, 0x1p30f);
  EXPECT_NE(run.bits(), before);

  // Adam's t does not count them, also in a run that resumes.
  CheckpointState later;
  run.step.describe(report, later);
  EXPECT_EQ(later.skipped, report.scalars.skipped);
  const testing::TemporaryDirectory saved;
  run.step.with_host_tensors([&](const TrainingTensors& t) { save_checkpoint(saved.path(), later, t, 0); });
  Trained resumed(train, Device::cuda);
  resumed.step.resume(saved.path());
  for (Trained* each : {&run, &resumed}) each->go(3);
  EXPECT_TRUE(same_bits(resumed.bits(), run.bits()));
}

// Starts with a loss scale that always overflows: the steps until it fits have no effect, and the rest learn as in
// fp32.
TEST(TrainingOnTheGpu, HundredsOfStepsInFp16LearnAfterThoseThatAreSkipped) {
  LONGSTRIDE_NEEDS_GPU();
  TrainConfig train = train_config(Precision::fp16);
  train.steps = 400;
  const testing::TemporaryDirectory directory;
  Trained first(train, Device::cuda);
  first.step.start();
  CheckpointState state = state_of(first);
  state.loss_scale = 0x1p60;
  first.step.with_host_tensors([&](const TrainingTensors& t) { save_checkpoint(directory.path(), state, t, 0); });

  Trained narrow(train, Device::cuda);
  narrow.step.resume(directory.path());
  train.precision = Precision::fp32;
  Trained full(train, Device::cuda);
  full.step.start();
  const std::vector<std::uint8_t> rows =
      rows_of(train, 0);  // always the same rows, so that there is something to learn
  const auto loss_after = [&](Trained& run, int steps) {
    for (int i = 0; i < steps; ++i) run.step.run(rows.data());
    return run.step.report().loss;
  };
  const double start = loss_after(full, 1), end = loss_after(full, 299), found = loss_after(narrow, 300);
  const auto scalars = narrow.step.report().scalars;
  EXPECT_GE(scalars.skipped, 10);
  EXPECT_LE(scalars.skipped, 60);
  EXPECT_EQ(scalars.skipped_in_row, 0);
  EXPECT_GT(scalars.good_steps, 0);
  ASSERT_LT(end, 0.9 * start);
  // The skipped steps are missing at the end.
  EXPECT_NEAR(found, end, 0.2 * (start - end));
}

class Memory : public SequenceSet {
 public:
  std::int64_t sequences() const override { return 3; }
  std::int64_t length(std::int64_t s) const override { return 40 + 60 * s; }
  void read(std::int64_t s, std::int64_t offset, std::int64_t length, std::uint8_t* out) const override {
    const auto all = toy_tokens(160, 20 + static_cast<std::uint64_t>(s));
    std::copy_n(all.begin() + offset, length, out);
  }
};

TEST(TrainingOnTheGpu, StandaloneEvaluationMatchesTheDeviceItTrainedOn) {
  LONGSTRIDE_NEEDS_GPU();
  const std::pair<Precision, Precision> cases[] = {{Precision::fp32, Precision::fp32},
                                                   {Precision::bf16, Precision::fp32},
                                                   {Precision::bf16, Precision::bf16},
                                                   {Precision::fp16, Precision::fp32}};
  for (const auto& [precision, residual] : cases) {
    TrainConfig train = train_config(precision);
    train.residual = residual;
    const std::string name = std::string(name_of(precision)) + ", residual stream in " + name_of(residual);
    Trained gpu(train, Device::cuda);
    gpu.step.start();
    gpu.go(3);
    const EvaluationConfig config = validation_config(train, gpu.step.batching(), small_config().context);
    const double during =
        evaluate(gpu.model, default_objective(), gpu.step.context(), Memory(), config, *gpu.comm).scored.loss();
    const bool fp32 = precision == Precision::fp32;
    gpu.step.with_host_tensors([&](const TrainingTensors& t) {
      Decoder loaded(small_config());
      for (Device device : {Device::cuda, Device::cpu}) {
        loaded.parameters().bind(t.masters, t.masters);
        EvaluationMemory memory(loaded, t.masters, config, train, device);
        Context ctx = memory.context();
        const double alone = evaluate(loaded, default_objective(), ctx, Memory(), config, *gpu.comm).scored.loss();
        if (device == Device::cuda) {
          EXPECT_EQ(alone, during) << name;
        } else {
          EXPECT_NEAR(alone, during, (fp32 ? 1e-5 : 1e-2) * during) << name;
        }
      }
    });
  }
}

TEST(TrainingOnTheGpu, EvaluationBetweenStepsMatchesTheCpuAndChangesNothing) {
  LONGSTRIDE_NEEDS_GPU();
  const TrainConfig train = train_config(Precision::fp32);
  Trained cpu(train, Device::cpu), gpu(train, Device::cuda);
  const EvaluationConfig config = validation_config(train, gpu.step.batching(), small_config().context);
  std::vector<double> nats;
  for (Trained* run : {&cpu, &gpu}) {
    run->step.start();
    run->go(3);
    nats.push_back(
        evaluate(run->model, default_objective(), run->step.context(), Memory(), config, *run->comm).scored.loss());
    run->go(3);
  }
  EXPECT_NEAR(nats[1], nats[0], 1e-5 * nats[0]);
  EXPECT_TRUE(same_bits(gpu.bits(), bits_after(6, train)));
}

}  // namespace
}  // namespace longstride::test
