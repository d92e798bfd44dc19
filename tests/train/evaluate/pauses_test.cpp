// Between two steps a run stops when asked to, waits for a disk, and counts that time towards the time left.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "datasets/objectives/kinds.h"
#include "framework/train/metrics/time_left.h"
#include "framework/train/run/file_work.h"
#include "framework/train/run/rounds.h"
#include "framework/train/run/stop.h"
#include "framework/train/trainer.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/toy_model.h"

namespace longstride::pauses_test {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t context = 23;

class Rows : public BatchSource {
 public:
  std::int64_t context() const override { return pauses_test::context; }
  std::int64_t epoch_rows() const override { return 100; }
  void read(std::int64_t step, std::int64_t, std::int64_t first, const Batch& out) const override {
    for (std::int64_t r = 0; r < out.rows(); ++r)
      write_row(out, r, test::toy_tokens(context(), static_cast<std::uint64_t>(8 * step + first + r)).data(), 0, true);
  }
};

// `windows` windows; somebody asks the process to stop while window `signal_at` is read.
class Validation : public SequenceSet {
 public:
  explicit Validation(std::int64_t windows, std::int64_t signal_at = -1)
      : bytes_(test::toy_tokens(windows * context)), signal_at_(signal_at) {}
  std::int64_t sequences() const override { return 1; }
  std::int64_t length(std::int64_t) const override { return std::ssize(bytes_); }
  void read(std::int64_t, std::int64_t offset, std::int64_t length, std::uint8_t* out) const override {
    if (read_++ == signal_at_) ::raise(SIGUSR1);
    std::copy_n(bytes_.begin() + offset, length, out);
  }
  std::int64_t windows_read() const { return read_; }

 private:
  std::vector<std::uint8_t> bytes_;
  const std::int64_t signal_at_;
  mutable std::int64_t read_ = 0;
};

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Pauses : public ::testing::Test {
 protected:
  Pauses() {
    catch_stop_signals();
    clear_stop_request();
    setup_.config.steps = 6;
    setup_.config.global_batch = 2;
    setup_.config.lr = 1e-3;
    setup_.config.warmup = 1;
    setup_.config.log_every = 3;
    setup_.run = dir_.path();
    setup_.recipe = "name: toy\n";
    setup_.keep_samples = [this](std::int64_t, const Samples&) { return ++sampled_, std::vector<Media>(); };
  }
  ~Pauses() override { clear_stop_request(); }

  TrainingOutcome run(const SequenceSet* validation = nullptr) {
    Decoder model(test::toy_config());
    const auto comm = make_single_communicator();
    setup_.model = &model;
    setup_.data = &rows_;
    setup_.objective = &default_objective();
    setup_.validation = validation;
    setup_.comm = comm.get();
    ::testing::internal::CaptureStderr();
    const TrainingOutcome outcome = train(setup_);
    printed_ = ::testing::internal::GetCapturedStderr();
    return outcome;
  }

  testing::TemporaryDirectory dir_;
  Rows rows_;
  TrainerSetup setup_;
  int sampled_ = 0;
  std::string printed_;
};

TEST_F(Pauses, ASignalDuringAnEvaluationAbandonsItWithoutAFigure) {
  setup_.config.evaluate_every = 2;
  setup_.config.sample_every = 2;
  const Validation validation(30, 4);
  const TrainingOutcome outcome = run(&validation);
  EXPECT_TRUE(outcome.stopped);
  EXPECT_EQ(outcome.step, 2);
  EXPECT_LE(validation.windows_read(), 8);
  EXPECT_EQ(sampled_, 0) << "samples after it";
  EXPECT_EQ(text_of(dir_ / "metrics.jsonl").find("split"), std::string::npos);
  const std::string state = text_of(dir_ / "checkpoints/step-00000002/state.json");
  EXPECT_NE(state.find("\"step\""), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(state).value("valid_loss", nlohmann::json()), nullptr);
}

TEST_F(Pauses, AnEvaluationThatEndsHasItsFigure) {
  setup_.config.evaluate_every = 2;
  const Validation validation(30);
  EXPECT_FALSE(run(&validation).stopped);
  EXPECT_EQ(validation.windows_read(), 3 * 30);
  const std::string state = text_of(dir_ / "checkpoints/step-00000006/state.json");
  EXPECT_GT(nlohmann::json::parse(state).at("valid_loss").get<double>(), 1);
}

TEST_F(Pauses, AStopBeforeAnEvaluationOrSamplesSkipsThem) {
  setup_.config.evaluate_every = setup_.config.sample_every = 1;
  const Validation validation(30);
  ::raise(SIGTERM);
  EXPECT_EQ(run(&validation).step, 1);
  EXPECT_EQ(validation.windows_read(), 0);
  EXPECT_EQ(sampled_, 0);
  EXPECT_TRUE(std::ifstream(dir_ / "checkpoints/step-00000001/state.json").good());
}

TEST_F(Pauses, TheFirstStepIsShownAndThenMeanLosses) {
  run();
  EXPECT_TRUE(printed_.starts_with("step 1/6 | ")) << printed_;
  EXPECT_EQ(printed_.find("MFU"), std::string::npos) << printed_;
  std::istringstream lines(text_of(dir_ / "metrics.jsonl"));
  nlohmann::json last;
  for (std::string line; std::getline(lines, line);)
    if (const auto parsed = nlohmann::json::parse(line); parsed.contains("loss")) last = parsed;
  EXPECT_EQ(last.at("step"), 6);
  const double shown = last.at("mean_loss").get<double>() / std::log(2.0);
  EXPECT_NE(fmt::format("{:.3f}", shown), fmt::format("{:.3f}", last.at("bits_per_byte").get<double>()));
  EXPECT_NE(printed_.find(fmt::format("step 6/6 | {:.3f} bits/byte", shown)), std::string::npos) << printed_;
}

TEST(Rounds, GoOnUntilAllIsDoneOrAStop) {
  const auto comm = make_single_communicator();
  bool stop = false;
  Rounds rounds(*comm, [&] { return stop; });
  EXPECT_TRUE(rounds.another(true));
  stop = true;
  EXPECT_FALSE(rounds.another(true));
  EXPECT_TRUE(rounds.stopped());
  Rounds done(*comm, [&] { return stop; });
  EXPECT_FALSE(done.another(false));
  EXPECT_FALSE(done.stopped()) << "nothing was left to do";
}

// Evaluations after steps 4, 8 and 10, checkpoints after 5 and 10, samples never.
TEST(TimeLeft, CountsWhatIsStillDue) {
  TimeLeft left(10);
  left.expect(TimeLeft::evaluation, 4);
  left.expect(TimeLeft::saving, 5);
  EXPECT_EQ(left.from(1), 0) << "nothing is known";
  left.guess(TimeLeft::evaluation, 7);
  left.took(TimeLeft::sampling, 1000);
  EXPECT_EQ(left.from(1), 3 * 7);
  left.took(TimeLeft::evaluation, 20);
  left.took(TimeLeft::evaluation, 40);
  left.took(TimeLeft::saving, 1);
  EXPECT_EQ(left.from(0), 3 * 30 + 2);
  EXPECT_EQ(left.from(4), 3 * 30 + 2) << "a report comes before the evaluation of its step";
  EXPECT_EQ(left.from(5), 2 * 30 + 2);
  EXPECT_EQ(left.from(8), 2 * 30 + 1);
  EXPECT_EQ(left.from(10), 30 + 1);
}

TEST(TimeLeft, KnowsWhatComesOnlyAtTheEnd) {
  TimeLeft left(10);
  left.expect(TimeLeft::evaluation, 0);
  left.guess(TimeLeft::evaluation, 7);
  EXPECT_EQ(left.from(3), 7);
  EXPECT_EQ(left.from(10), 7);
}

TEST(FileWork, CountsAsWorkAndIsSaid) {
  std::ostringstream log;
  const auto logger = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  {
    const auto comm = make_single_communicator();
    const FileWorkWatch watch(*comm, 0.15);
    std::this_thread::sleep_for(milliseconds(120));
    EXPECT_EQ(comm->signs_of_life(), 0) << "nothing works with files";
    {
      const FileWork work("disk/metrics.jsonl");
      std::this_thread::sleep_for(milliseconds(600));
    }
    EXPECT_GE(comm->signs_of_life(), 3);
    std::this_thread::sleep_for(milliseconds(100));
    const std::int64_t signs = comm->signs_of_life();
    std::this_thread::sleep_for(milliseconds(120));
    EXPECT_EQ(comm->signs_of_life(), signs) << "it has ended";
  }
  spdlog::set_default_logger(logger);
  const std::string said = log.str(), what = "disk/metrics.jsonl: the disk has not answered for ";
  EXPECT_NE(said.find(what), std::string::npos) << said;
  EXPECT_NE(said.find(what, said.find(what) + 1), std::string::npos) << "said again: " << said;
}

}  // namespace
}  // namespace longstride::pauses_test
