// Spans, classes of sentences and types: what rows are asked and read, and what figures and answers say.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "datasets/objectives/answer_spans.h"
#include "datasets/objectives/group_classes.h"

namespace longstride {
namespace {

class OneRow {
 public:
  OneRow(const Objective& objective, std::int64_t seq, bool types = false)
      : objective_(objective), layout_(fields(types), 1, seq) {
    block_.resize(layout_.bytes());
  }
  void write(const RowBytes& of) { objective_.write_row_of(batch(), 0, of, {}); }
  Batch batch() { return layout_.at(block_.data()); }
  std::vector<int> tokens() { return ints<std::uint16_t>(batch().tokens); }
  std::vector<int> targets() { return ints<std::uint16_t>(batch().targets); }
  std::vector<int> weights() { return ints<float>(batch().weights); }
  std::vector<int> types() { return ints<std::uint8_t>(batch().types); }

 private:
  BatchFields fields(bool types) const {
    BatchFields fields = objective_.fields();
    fields.types = types;
    return fields;
  }
  template <class T>
  static std::vector<int> ints(const Tensor& t) {
    std::vector<int> out;
    for (std::int64_t i = 0; i < t.count(); ++i) out.push_back(static_cast<int>(t.as<const T>()[i]));
    return out;
  }

  const Objective& objective_;
  BatchLayout layout_;
  std::vector<std::byte> block_;
};

using Ints = std::vector<int>;
const std::uint8_t* const letters = reinterpret_cast<const std::uint8_t*>("abcdefghijklmnopqrstuvwxyz");

TEST(Spans, PointAtTheFirstAndTheLastByteBehindTheIdOfTheRow) {
  const Spans objective;
  OneRow row(objective, 9);
  const auto asked = [&](std::vector<std::uint32_t> labels, std::int64_t offset, std::int64_t length) {
    row.write({.bytes = letters, .length = length, .offset = offset, .labels = labels});
    return row.targets();
  };
  EXPECT_EQ(asked({0, 1}, 0, 6), (Ints{1, 1}));
  EXPECT_EQ(row.tokens(), (Ints{ids::classify, 'a', 'b', 'c', 'd', 'e', 'f', ids::pad, ids::pad}));
  EXPECT_EQ(row.weights(), (Ints{1, 1}));
  EXPECT_EQ(asked({2, 6}, 0, 6), (Ints{3, 6}));
  EXPECT_EQ(asked({12, 16}, 10, 6), (Ints{3, 6}));  // a later window
  // No answer, or not all of it in this row.
  for (const auto& labels : {std::vector<std::uint32_t>{3, 3}, {9, 12}, {14, 17}, {1, 5}})
    EXPECT_EQ(asked(labels, 10, 6), (Ints{0, 0}));
  // A full row loses its last byte, and with it an answer that has it.
  EXPECT_EQ(asked({4, 8}, 0, 9), (Ints{5, 8}));
  EXPECT_EQ(asked({4, 9}, 0, 9), (Ints{0, 0}));
  EXPECT_EQ(asked({}, 0, 6), (Ints{0, 0}));
  EXPECT_EQ(row.weights(), (Ints{0, 0}));
}

TEST(Spans, LabelsBeyondTheDocumentAreFaults) {
  const Spans objective;
  const auto problem = [&](std::vector<std::uint32_t> labels) { return objective.problem_of_labels(labels, 1000); };
  EXPECT_EQ(problem({0, 1000}), "");
  EXPECT_EQ(problem({7, 7}), "");
  EXPECT_EQ(
      problem({7, 1001}),
      "has labels 7 and 1001, but those of objective.kind spans are where the answer begins and ends, from 0 to its "
      "1,000 bytes; correct them, with twice the same number where there is no answer");
  EXPECT_NE(problem({8, 7}), "");
}

TEST(Spans, FiguresAreThoseOfRows) {
  const Spans objective;
  std::vector<double> sums(objective.sums(), 0.0);
  for (const double f1 : {1.0, 0.5, 0.0}) {
    objective.add({1, 1, f1 == 1.0 ? 1.0 : 0.0, 0}, sums.data());
    objective.add({2, 1, f1, 1}, sums.data());
  }
  objective.add({0, 0, 1, 0}, sums.data());  // not asked
  const std::vector<Figure> figures = objective.figures({sums, 6});
  ASSERT_EQ(figures.size(), 3U);
  EXPECT_EQ(figures[0].key(), "f1");
  EXPECT_DOUBLE_EQ(figures[0].value, 0.5);
  EXPECT_EQ(figures[1].key(), "exact_match");
  EXPECT_DOUBLE_EQ(figures[1].value, 1.0 / 3);
  EXPECT_DOUBLE_EQ(figures[2].value, 1.5);
  EXPECT_FALSE(figures[0].lower_is_better);
  EXPECT_EQ(objective.shown_form().name, "F1");
}

TEST(Spans, AnswersNeverEndBeforeTheyBegin) {
  const Spans objective;
  const Batch none{Tensor(nullptr, Dtype::u16, {1, 4})};
  const auto answer = [&](std::vector<float> scores) {
    return objective.answers_of({none, scores.data(), std::ssize(scores) / 2, 100}).at(0);
  };
  const auto found = answer({0, 1, 2, 5, 0, 6, 3, 1});  // the best begin is behind the best end
  EXPECT_EQ(found.at("begin"), 100);
  EXPECT_EQ(found.at("end"), 101);
  const double begins = std::exp(1) / (1 + std::exp(1) + std::exp(2) + std::exp(5)),
               ends = std::exp(6) / (1 + std::exp(6) + std::exp(3) + std::exp(1));
  EXPECT_NEAR(found.at("probability").get<double>(), begins * ends, 1e-9);
  EXPECT_TRUE(answer({9, 1, 2, 3, 9, 1, 2, 3}).at("begin").is_null());
  EXPECT_EQ(answer({9, 1, 2, 3, 9, 1, 2, 3}).at("position"), 100);
}

TEST(Sentences, AskTheLastPositionOfEveryGroupThatEndsInTheRow) {
  const Sentences objective(3);
  OneRow row(objective, 8);
  const std::vector<std::int64_t> ends{0, 3, 3, 7, 12, 20};  // an empty group is never asked
  const std::vector<std::uint16_t> classes{2, 1, 0, 1, 2};
  row.write({.bytes = letters, .length = 8, .groups = {ends, 0}, .group_labels = classes});
  EXPECT_EQ(row.weights(), (Ints{0, 0, 1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(row.targets(), (Ints{0, 0, 2, 0, 0, 0, 0, 0}));
  row.write({.bytes = letters, .length = 5, .groups = {ends, 7}, .group_labels = classes});
  EXPECT_EQ(row.weights(), (Ints{0, 0, 0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(row.targets()[4], 1);
  row.write({.bytes = letters, .length = 8, .groups = {ends, 12}, .group_labels = classes});
  EXPECT_EQ(row.weights()[7], 1);
  EXPECT_EQ(row.targets()[7], 2);
  EXPECT_EQ(row.tokens()[7], 'h');
  // To be answered: asked without a class.
  row.write({.bytes = letters, .length = 8, .groups = {ends, 12}});
  EXPECT_EQ(row.weights()[7], 1);
}

TEST(Sentences, TheEmptyGroupHasALabelOfItsOwn) {
  const Sentences objective(5);
  OneRow row(objective, 4);
  const std::vector<std::int64_t> ends{0, 2, 2, 4};
  const std::vector<std::uint16_t> classes{1, 3, 4};
  row.write({.bytes = letters, .length = 4, .groups = {ends, 0}, .group_labels = classes});
  EXPECT_EQ(row.targets(), (Ints{0, 1, 0, 4}));
}

TEST(Types, TakeTurnsInEveryDocumentWhereverARowBegins) {
  const Sentences objective;
  OneRow row(objective, 8, true);
  const std::vector<std::int64_t> groups{0, 2, 4, 6, 9, 11, 20}, documents{0, 6, 20};
  row.write({.bytes = letters, .length = 8, .groups = {groups, 0}});
  EXPECT_EQ(row.types(), (Ints{0, 0, 1, 1, 0, 0, 1, 1}));
  // The second document begins at 6, with a group of three.
  row.write({.bytes = letters, .length = 8, .documents = {documents, 3}, .groups = {groups, 3}, .offset = 3});
  EXPECT_EQ(row.types(), (Ints{1, 0, 0, 0, 0, 0, 1, 1}));
  // A row that begins within a sequence, which begins at 6; and padding.
  row.write({.bytes = letters, .length = 6, .groups = {groups, 10}, .offset = 4});
  EXPECT_EQ(row.types(), (Ints{1, 0, 0, 0, 0, 0, 0, 0}));
  // Without groups documents take turns.
  row.write({.bytes = letters, .length = 8, .documents = {documents, 3}});
  EXPECT_EQ(row.types(), (Ints{0, 0, 0, 1, 1, 1, 1, 1}));
  // The id before the bytes has type 0.
  const Spans spans;
  OneRow asked(spans, 8, true);
  asked.write({.bytes = letters, .length = 7, .groups = {groups, 2}, .offset = 2});
  EXPECT_EQ(asked.types(), (Ints{0, 1, 1, 0, 0, 1, 1, 1}));
}

}  // namespace
}  // namespace longstride
