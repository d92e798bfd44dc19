// Sources ask rows what the objective says, under keys that follow from seed, step and row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "datasets/dataset.h"
#include "datasets/objectives/next_byte.h"

namespace longstride {
namespace {

using Keys = std::vector<std::pair<std::uint64_t, std::int64_t>>;

// Notes the keys that it is given.
class Noting final : public Objective {
 public:
  const char* kind() const override { return "noting"; }
  void write(const Batch& /*batch*/, std::int64_t /*row*/, const RowBytes& /*of*/, const RowKey& key) const override {
    keys_.emplace_back(key.seed, key.row);
  }
  std::vector<Figure> figures(const Scored& /*scored*/) const override { return {}; }
  double guess() const override { return 1; }

  Keys take() const { return std::exchange(keys_, {}); }

 private:
  mutable Keys keys_;
};

class Zeros final : public SequenceSet {
 public:
  std::int64_t sequences() const override { return 1; }
  std::int64_t length(std::int64_t /*sequence*/) const override { return 1000; }
  void read(std::int64_t /*s*/, std::int64_t /*offset*/, std::int64_t length, std::uint8_t* out) const override {
    std::fill_n(out, length, std::uint8_t{0});
  }
};

Batch rows(std::int64_t count, std::int64_t context) {
  static std::vector<std::uint8_t> bytes(1000);
  return {Tensor(bytes.data(), Dtype::u8, {count, context})};
}

TEST(RowKeys, AreTheSeedAndTheNumberOfTheRowInTheRun) {
  const Noting objective;
  const auto zeros = std::make_shared<Zeros>();
  const auto windows = make_batch_source(zeros, 10, 7, "x", objective);
  windows->read(3, 4, 1, rows(2, 10));
  EXPECT_EQ(objective.take(), (Keys{{7, 13}, {7, 14}}));
  make_stream_source(zeros, 10, 4, "x", 9, objective)->read(2, 4, 2, rows(2, 10));
  EXPECT_EQ(objective.take(), (Keys{{9, 10}, {9, 11}}));
  const auto make = [&](std::int64_t context) { return make_batch_source(zeros, context, 7, "x", objective); };
  make_staged_source({{2, 6, 10}}, 4, 20, make)->read(3, 4, 0, rows(2, 20));
  EXPECT_EQ(objective.take(), (Keys{{7, 10}, {7, 11}}));  // 120 bytes are 6 rows of 20
}

TEST(NextByte, FiguresAreNatsAndBitsOfTheMeanLoss) {
  const std::vector<Figure> figures = NextByte().figures({{12.0}, 4, 0.5});
  ASSERT_EQ(figures.size(), 2U);
  EXPECT_EQ(figures[0].key(), "loss");
  EXPECT_EQ(figures[0].value, 3);
  EXPECT_EQ(figures[1].key(), "bits_per_byte");
  EXPECT_DOUBLE_EQ(figures[1].value, 3 / std::log(2.0));
  EXPECT_DOUBLE_EQ(*figures[1].error, 0.5 / std::log(2.0));
  EXPECT_TRUE(figures[0].lower_is_better && figures[1].lower_is_better);
  EXPECT_EQ(NextByte().shown_form().name, "bits per byte");
  EXPECT_DOUBLE_EQ(NextByte().shown_of_loss(std::log(256.0)).value, NextByte().guess());
}

}  // namespace
}  // namespace longstride
