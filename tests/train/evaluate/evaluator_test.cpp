#include "framework/train/evaluate/evaluator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "datasets/objectives/kinds.h"
#include "tests/support/toy_model.h"

namespace longstride {
namespace {

class Memory : public SequenceSet {
 public:
  explicit Memory(std::vector<std::int64_t> lengths) {
    std::uint64_t seed = 11;
    for (std::int64_t length : lengths) data_.push_back(test::toy_tokens(length, seed++));
  }
  std::int64_t sequences() const override { return static_cast<std::int64_t>(data_.size()); }
  std::int64_t length(std::int64_t s) const override {
    return static_cast<std::int64_t>(data_[static_cast<std::size_t>(s)].size());
  }
  void read(std::int64_t s, std::int64_t offset, std::int64_t length, std::uint8_t* out) const override {
    std::copy_n(data_[static_cast<std::size_t>(s)].begin() + offset, length, out);
  }

 private:
  std::vector<std::vector<std::uint8_t>> data_;
};

TEST(EvaluationWindows, ScoreEveryByteOnceWithTheContextThatWasAskedFor) {
  const Memory sequences({1, 5, 16, 17, 100});
  for (std::int64_t context : {4, 16}) {
    for (std::int64_t min_context : {std::int64_t{0}, std::int64_t{1}, context / 2, context - 1}) {
      EvaluationConfig config{context, min_context, 1, 0};
      std::vector<std::vector<int>> scored;
      for (std::int64_t s = 0; s < sequences.sequences(); ++s)
        scored.emplace_back(static_cast<std::size_t>(sequences.length(s)), 0);
      for (const EvaluationWindow& w : evaluation_windows(sequences, config)) {
        EXPECT_LE(w.length, context);
        EXPECT_GE(w.start, 0);
        EXPECT_LE(w.start + w.length, sequences.length(w.sequence));
        for (std::int64_t t = w.scored_from; t < w.length; ++t) {
          ++scored[static_cast<std::size_t>(w.sequence)][static_cast<std::size_t>(w.start + t)];
          EXPECT_TRUE(t >= min_context || w.start == 0);
        }
      }
      for (const auto& sequence : scored)
        for (int times : sequence) EXPECT_EQ(times, 1) << context << " " << min_context;
    }
  }
}

TEST(EvaluationWindows, DoNotOverlapWithoutMinimumContext) {
  const Memory sequences({10});
  const auto windows = evaluation_windows(sequences, {4, 0, 1, 0});
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[2].start, 8);
  EXPECT_EQ(windows[2].length, 2);
  EXPECT_EQ(windows[2].scored_from, 0);
}

TEST(EvaluationWindows, TheLastOverlappingOneIsMovedBackToTheEnd) {
  const Memory sequences({11});
  const auto windows = evaluation_windows(sequences, {4, 2, 1, 0});
  ASSERT_EQ(windows.size(), 5u);
  EXPECT_EQ(windows[4].start, 7);
  EXPECT_EQ(windows[4].length, 4);
  EXPECT_EQ(windows[4].scored_from, 3);
}

TEST(EvaluationWindows, AreSpreadEvenlyWhenAskedFor) {
  const Memory sequences({400});
  EvaluationConfig config{4, 0, 1, 7};
  config.spread = true;
  const auto windows = evaluation_windows(sequences, config);
  ASSERT_EQ(windows.size(), 7u);
  for (std::size_t i = 0; i < 7; ++i)
    EXPECT_EQ(windows[i].start, 4 * static_cast<std::int64_t>((2 * i + 1) * 100 / 14));
  config.max_windows = 500;
  EXPECT_EQ(evaluation_windows(sequences, config).size(), 100u);
  config.max_windows = 0;
  EXPECT_EQ(evaluation_windows(sequences, config).size(), 100u);
}

// From the scatter of the windows, directly from the definition; equal lengths.
TEST(Evaluate, StandardErrorIsThatOfTheMeanOverWindows) {
  test::ToyModel<double> toy(test::toy_config());
  toy.randomise();
  const Memory sequences({115});
  const auto comm = make_single_communicator();
  const EvaluationConfig config{23, 0, 5, 0};
  std::vector<std::uint8_t> tokens(115);
  sequences.read(0, 0, 115, tokens.data());
  const std::vector<double> losses = toy.losses(tokens, 5);
  double mean = 0, squares = 0;
  std::vector<double> of_window(5, 0.0);
  for (std::size_t i = 0; i < 115; ++i) of_window[i / 23] += losses[i] / 23 / std::log(2.0);
  for (double x : of_window) mean += x / 5;
  for (double x : of_window) squares += (x - mean) * (x - mean);
  std::vector<std::byte> memory(evaluation_bytes(toy.model(), toy.context(), config) + Arena::alignment);
  void* base = memory.data();
  std::size_t space = memory.size();
  std::align(Arena::alignment, memory.size() - Arena::alignment, base, space);
  Arena arena(base, memory.size() - Arena::alignment);
  toy.context().arena = &arena;
  const EvaluationResult result = evaluate(toy.model(), default_objective(), toy.context(), sequences, config, *comm);
  EXPECT_NEAR(result.figures.at(1).value, mean, 1e-12);
  EXPECT_NEAR(result.figures.at(1).error.value(), std::sqrt(squares / 4 / 5), 1e-12);
}

TEST(Evaluate, EqualsTheLossesOfTheWindowsWhateverTheBatch) {
  test::ToyModel<double> toy(test::toy_config());
  toy.randomise();
  const Memory sequences({7, 23, 60});
  const auto comm = make_single_communicator();
  for (std::int64_t min_context : {0, 9}) {
    EvaluationConfig config{23, min_context, 1, 0};
    double expected = 0;
    std::int64_t bytes = 0;
    for (const EvaluationWindow& w : evaluation_windows(sequences, config)) {
      std::vector<std::uint8_t> tokens(static_cast<std::size_t>(w.length));
      sequences.read(w.sequence, w.start, w.length, tokens.data());
      const std::vector<double> losses = toy.losses(tokens, 1);
      for (std::int64_t t = w.scored_from; t < w.length; ++t) expected += losses[static_cast<std::size_t>(t)];
      bytes += w.length - w.scored_from;
    }
    EXPECT_EQ(bytes, 90);
    for (std::int64_t batch : {1, 2, 5}) {
      config.batch = batch;
      std::vector<std::byte> memory(evaluation_bytes(toy.model(), toy.context(), config) + Arena::alignment);
      void* base = memory.data();
      std::size_t space = memory.size();
      std::align(Arena::alignment, memory.size() - Arena::alignment, base, space);
      Arena arena(base, memory.size() - Arena::alignment);
      toy.context().arena = &arena;
      const EvaluationResult result =
          evaluate(toy.model(), default_objective(), toy.context(), sequences, config, *comm);
      EXPECT_EQ(result.bytes, 90);
      EXPECT_NEAR(result.scored.sums.front(), expected, 1e-9);
    }
  }
}

}  // namespace
}  // namespace longstride
