// States in 16-bit training: half the memory, and checkpoints of other precisions. The CPU does not compute in 16 bits,
// but it plans for a GPU, and writes and reads the GPU's checkpoints.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/train/checkpoint/checkpoint_state.h"
#include "tests/support/distance_toys.h"
#include "tests/support/stream_run.h"
#include "tests/support/temporary_directory.h"

namespace longstride::test {
namespace {

constexpr std::int64_t rows = 4;

MemoryPlan planned(const DistanceToy& config, Precision precision) {
  TrainConfig train = stream_training(2);
  train.precision = precision;
  return plan_memory(*config.make_model(), train, 1, Device::cuda);
}

TEST(StatesIn16Bits, PlansHalveMemoriesButNotCounts) {
  for (const auto& [name, config] : distance_toys()) {
    if (!config.remembers()) continue;
    const MemoryPlan whole = planned(config, Precision::fp32);
    const bool counts = config.memory.start == MemoryStart::empty;
    const std::int64_t of_counts = counts ? 2 * rows * StateSet::alignment * 4 : 0;
    for (const Precision precision : {Precision::bf16, Precision::fp16}) {
      const MemoryPlan half = planned(config, precision);
      EXPECT_GT(half.states, of_counts) << name;
      EXPECT_EQ(2 * (half.states - of_counts), whole.states - of_counts) << name;
      EXPECT_EQ(2 * (whole.snapshot - half.snapshot), whole.states - half.states) << name;
    }
  }
}

// A run in host memory whose states are of other types.
class Kept {
 public:
  Kept(StreamRun& run, Dtype compute) : run_(run), types_{compute, Dtype::f32} {
    const StateSet& set = run.model->states();
    bytes_.resize(static_cast<std::size_t>(rows * set.row_bytes(types_)));
    const Tensor flat(bytes_.data(), Dtype::u8, {std::ssize(bytes_)});
    rows_ = RowStates(rows, types_, flat, flat);
  }
  // The run's states, rounded to the compute type of a GPU.
  void take_rounded(Dtype compute) {
    StreamRun::States from = run_.states();
    for (const State& state : run_.model->states().all()) {
      const Tensor x = from.rows().now(state), y = rows_.now(state);
      std::vector<double> values;
      for (std::int64_t i = 0; i < x.count(); ++i)
        values.push_back(state.type == StateType::exact ? x.as<float>()[i]
                                                        : testing::rounded(x.as<float>()[i], compute));
      const std::vector<std::byte> raw = testing::encoded(values, y.dtype());
      ASSERT_EQ(raw.size(), y.bytes());
      std::copy(raw.begin(), raw.end(), y.as<std::byte>());
    }
  }
  std::vector<double> values() const {
    std::vector<double> all;
    for (const State& state : run_.model->states().all()) {
      const Tensor now = rows_.now(state);
      const std::vector<std::byte> raw(now.as<std::byte>(), now.as<std::byte>() + now.bytes());
      for (const double x : testing::decoded(raw, now.dtype())) all.push_back(x);
    }
    return all;
  }
  void save(const std::string& path) {
    with_tensors([&](const CheckpointState& state, const TrainingTensors& t) { save_checkpoint(path, state, t, 0); });
  }
  void load(const std::string& path) {
    with_tensors([&](const CheckpointState&, const TrainingTensors& t) { resume_from_checkpoint(run_.comm, path, t); });
  }

 private:
  template <class F>
  void with_tensors(F&& f) {
    CheckpointState state;
    run_.step.describe(run_.step.report(), state);
    run_.step.with_host_tensors([&](const TrainingTensors& t) {
      TrainingTensors mine = t;
      mine.states = rows_.all_now();
      mine.state_layout.rows = rows_;
      f(state, mine);
    });
  }

  StreamRun& run_;
  StateTypes types_;
  std::vector<std::byte> bytes_;
  RowStates rows_;
};

class CheckpointsOfPrecisions : public ::testing::TestWithParam<Dtype> {
 protected:
  void SetUp() override {
    run.step.start();
    run.go(4);  // rows are compressed from the third segment on
  }
  static std::string file(const testing::TemporaryDirectory& of, const std::string& name) {
    return read_file(of.path() + "/checkpoints/step-00000004/" + name);
  }
  static std::int64_t version(const testing::TemporaryDirectory& of) {
    return nlohmann::json::parse(file(of, "state.json")).at("version");
  }
  static std::size_t bytes_of_states(const testing::TemporaryDirectory& of) {
    return file(of, "states-00000-of-00001.safetensors").size();
  }

  const Dtype narrow = GetParam();
  StreamRun run{stream_training(2), compressive_toy()};
  testing::TemporaryDirectory directory;
};
INSTANTIATE_TEST_SUITE_P(Of, CheckpointsOfPrecisions, ::testing::Values(Dtype::bf16, Dtype::f16),
                         [](const auto& of) { return std::string(kernels::name_of(of.param)); });

// Training in 16 bits used to keep its values in f32.
TEST_P(CheckpointsOfPrecisions, AnOlderOneIsReadInto16BitsWithoutLoss) {
  Kept older(run, Dtype::f32), now(run, narrow);
  older.take_rounded(narrow);
  older.save(directory.path());
  EXPECT_EQ(version(directory), version_of_f32_states);
  now.load(directory.path());
  EXPECT_EQ(now.values(), older.values());
}

TEST_P(CheckpointsOfPrecisions, OneIn16BitsIsHalfAsLongAndOfALaterVersion) {
  Kept whole(run, Dtype::f32), half(run, narrow), again(run, narrow);
  const testing::TemporaryDirectory other;
  whole.save(directory.path());
  half.take_rounded(narrow);
  half.save(other.path());
  std::int64_t elements = 0;
  for (const State& state : run.model->states().all())
    if (state.type == StateType::compute) elements += rows * state.shape.count();
  const auto saved = static_cast<std::int64_t>(bytes_of_states(directory) - bytes_of_states(other));
  EXPECT_NEAR(static_cast<double>(saved), static_cast<double>(2 * elements), 128);  // tolerance: the header
  EXPECT_EQ(version(other), checkpoint_version);
  again.load(other.path());
  EXPECT_EQ(again.values(), half.values());
}

TEST_P(CheckpointsOfPrecisions, TheCpuContinuesWhatAGpuTrained) {
  Kept half(run, narrow);
  half.take_rounded(narrow);
  half.save(directory.path());
  StreamRun on_cpu(stream_training(2), compressive_toy());
  on_cpu.step.resume(directory.path());
  EXPECT_EQ(on_cpu.values(), half.values());
  on_cpu.go(1);
  EXPECT_EQ(on_cpu.step.step(), 5);
}

TEST_P(CheckpointsOfPrecisions, ValuesThatWouldBeRoundedAreRefusedInASentence) {
  run.save(directory.path());
  Kept now(run, narrow);
  try {
    now.load(directory.path());
    FAIL() << "values of f32 were rounded";
  } catch (const UserError& error) {
    const std::string precision = narrow == Dtype::bf16 ? "bf16" : "fp16", what = error.what();
    EXPECT_NE(what.find("has values of fp32 that " + precision +
                        " would round; continue the run with train.precision: "
                        "fp32, or begin another one with its weights (--from)"),
              std::string::npos)
        << what;
  }
}

}  // namespace
}  // namespace longstride::test
