// Masked bytes: which are asked, how they are shown, and what figures say. That another program draws the same is shown
// by the golden vectors of encoders (tests/golden/masks.py).
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>

#include "datasets/objectives/masked_bytes.h"

namespace longstride {
namespace {

class MaskedRow {
 public:
  explicit MaskedRow(std::int64_t seq) : layout_({.wide = true, .targets = true, .weights = true}, 1, seq) {
    block_.resize(layout_.bytes());
  }
  void write(const Masked& objective, const RowBytes& of, const RowKey& key) {
    objective.write(layout_.at(block_.data()), 0, of, key);
  }
  std::uint16_t token(std::int64_t i) { return layout_.at(block_.data()).tokens.as<std::uint16_t>()[i]; }
  std::uint16_t target(std::int64_t i) { return layout_.at(block_.data()).targets.as<std::uint16_t>()[i]; }
  bool asked(std::int64_t i) { return layout_.at(block_.data()).weights.as<float>()[i] == 1; }

 private:
  BatchLayout layout_;
  std::vector<std::byte> block_;
};

const std::uint8_t* bytes_of(const std::string& text) { return reinterpret_cast<const std::uint8_t*>(text.data()); }

// Counts of drawn shares lie within five deviations.
void expect_share(double count, double of, double share) {
  EXPECT_NEAR(count, of * share, 5 * std::sqrt(of * share * (1 - share))) << share << " of " << of;
}

TEST(Masked, TenThousandRowsHaveTheSharesOfTheSettings) {
  constexpr std::int64_t seq = 64, rows = 10000;
  const std::string text(seq, 'x');
  for (const MaskedSettings& s :
       {MaskedSettings{}, MaskedSettings{.share = 0.5, .mask = 0.2, .random = 0.7, .keep = 0.1},
        MaskedSettings{.unit = MaskedUnit::span, .share = 0.3, .length = 1}}) {
    MaskedRow row(seq);
    double asked = 0, hidden = 0, kept = 0;
    std::vector<double> of_position(seq, 0.0);
    for (std::int64_t r = 0; r < rows; ++r) {
      row.write(Masked(s), {bytes_of(text)}, {3, r});
      for (std::int64_t i = 0; i < seq; ++i) {
        EXPECT_EQ(row.target(i), 'x');
        if (!row.asked(i)) {
          EXPECT_EQ(row.token(i), 'x');
          continue;
        }
        ++asked, ++of_position[static_cast<std::size_t>(i)];
        hidden += row.token(i) == ids::mask ? 1 : 0;
        kept += row.token(i) == 'x' ? 1 : 0;
        EXPECT_LE(row.token(i), ids::mask);
      }
    }
    expect_share(asked, rows * seq, s.share);
    expect_share(hidden, asked, s.mask);
    expect_share(kept, asked, s.keep + s.random / 256);  // a drawn byte may be the same
    for (const double count : of_position) expect_share(count, rows, s.share);
  }
}

TEST(Masked, RowsAreFunctionsOfTheirKeysAlone) {
  constexpr std::int64_t seq = 256;
  const std::string text(seq, 'x');
  MaskedRow a(seq), b(seq);
  const auto same = [&](const RowKey& one, const RowKey& other) {
    a.write(Masked(), {bytes_of(text)}, one);
    b.write(Masked(), {bytes_of(text)}, other);
    bool equal = true;
    for (std::int64_t i = 0; i < seq; ++i) equal = equal && a.token(i) == b.token(i) && a.asked(i) == b.asked(i);
    return equal;
  };
  EXPECT_TRUE(same({7, 5}, {7, 5}));
  EXPECT_FALSE(same({7, 5}, {7, 6}));
  EXPECT_FALSE(same({7, 5}, {8, 5}));
}

using Units = std::vector<std::pair<std::int64_t, std::int64_t>>;
Units units(const MaskedSettings& settings, const std::string& text, const RowEnds& documents = {},
            const RowEnds& groups = {}) {
  Units out;
  for (const Masked::Unit& unit : Masked(settings).units(
           {.bytes = bytes_of(text), .documents = documents, .groups = groups}, std::ssize(text), {}))
    out.emplace_back(unit.begin, unit.end);
  return out;
}

TEST(Masked, WordsAreLettersDigitsAndLaterBytes) {
  EXPECT_EQ(units({.unit = MaskedUnit::word}, " A b2,\xC3\xA9t\xC3\xA9!-"), (Units{{1, 2}, {3, 5}, {6, 11}}));
  EXPECT_EQ(units({.unit = MaskedUnit::word}, "...!"), Units{});
  // Text without spaces has words of 32 bytes.
  EXPECT_EQ(units({.unit = MaskedUnit::word}, std::string(70, 'A')), (Units{{0, 32}, {32, 64}, {64, 70}}));
}

TEST(Masked, NoUnitCrossesTheEndOfADocumentOrGroup) {
  const std::vector<std::int64_t> documents{0, 3, 10, 20}, groups{0, 3, 6, 8, 10, 20};
  const RowEnds of_documents{documents, 1}, of_groups{groups, 1};  // the row begins at 1
  EXPECT_EQ(units({.unit = MaskedUnit::word}, "abcdefghij", of_documents), (Units{{0, 2}, {2, 9}, {9, 10}}));
  EXPECT_EQ(units({.unit = MaskedUnit::group}, "abcdefghij", of_documents), (Units{{0, 2}, {2, 9}, {9, 10}}));
  EXPECT_EQ(units({.unit = MaskedUnit::group}, "abcdefghij", of_documents, of_groups),
            (Units{{0, 2}, {2, 5}, {5, 7}, {7, 9}, {9, 10}}));
  for (const auto& [begin, end] : units({.unit = MaskedUnit::span, .length = 4}, "abcdefghij", of_documents)) {
    EXPECT_LE(end - begin, 4);
    EXPECT_FALSE(begin < 2 && end > 2);
    EXPECT_FALSE(begin < 9 && end > 9);
  }
}

TEST(Masked, AUnitIsAskedAndShownAsAWhole) {
  const std::string text = "some words of several lengths, and others";
  const auto seq = static_cast<std::int64_t>(text.size());
  MaskedRow row(seq);
  for (std::int64_t r = 0; r < 200; ++r) {
    row.write(Masked({.unit = MaskedUnit::word, .share = 0.4}), {bytes_of(text)}, {1, r});
    for (const auto& [begin, end] : units({.unit = MaskedUnit::word}, text))
      for (std::int64_t i = begin + 1; i < end; ++i) {
        EXPECT_EQ(row.asked(i), row.asked(begin));
        EXPECT_EQ(row.token(i) == ids::mask, row.token(begin) == ids::mask);
      }
    for (std::int64_t i = 0; i < seq; ++i)
      if (text[static_cast<std::size_t>(i)] == ' ') {
        EXPECT_FALSE(row.asked(i));
        EXPECT_EQ(row.token(i), ' ');
      }
  }
}

// Otherwise a row of few units could ask nothing.
TEST(Masked, EveryRowWithAUnitAsksOne) {
  MaskedRow row(8);
  for (std::int64_t r = 0; r < 300; ++r) {
    row.write(Masked({.unit = MaskedUnit::group, .share = 0.01}), {bytes_of("12345678")}, {1, r});
    EXPECT_TRUE(row.asked(0) && row.asked(7));
  }
}

TEST(Masked, PaddingIsShownAsSuchAndNeverAsked) {
  MaskedRow row(16);
  std::int64_t asked = 0;
  for (std::int64_t r = 0; r < 300; ++r) {
    row.write(Masked({.share = 0.5}), {.bytes = bytes_of("0123456789abcdef"), .length = 5}, {1, r});
    for (std::int64_t i = 0; i < 5; ++i) asked += row.asked(i) ? 1 : 0;
    for (std::int64_t i = 5; i < 16; ++i) {
      EXPECT_EQ(row.token(i), ids::pad);
      EXPECT_FALSE(row.asked(i));
    }
  }
  expect_share(static_cast<double>(asked), 300 * 5, 0.5);
  // Longer padding changes nothing before it.
  MaskedRow shorter(5);
  shorter.write(Masked(), {.bytes = bytes_of("01234")}, {1, 2});
  row.write(Masked(), {.bytes = bytes_of("0123456789abcdef"), .length = 5}, {1, 2});
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(row.token(i), shorter.token(i));
}

TEST(Masked, FiguresAreNatsBitsAndAccuracy) {
  const Masked objective;
  std::vector<double> sums(objective.sums(), 0.0);
  objective.add({2, 1, true}, sums.data());
  objective.add({1, 1, false}, sums.data());
  objective.add({0, 0, true}, sums.data());  // not asked
  const std::vector<Figure> figures = objective.figures({sums, 2});
  ASSERT_EQ(figures.size(), 3U);
  EXPECT_EQ(figures[0].key(), "loss");
  EXPECT_EQ(figures[1].key(), "bits_per_masked_byte");
  EXPECT_DOUBLE_EQ(figures[1].value, 1.5 / std::log(2.0));
  EXPECT_EQ(figures[2].key(), "accuracy");
  EXPECT_EQ(figures[2].value, 0.5);
  EXPECT_EQ(objective.figures_of_loss(1).size(), 2U);
  EXPECT_EQ(objective.shown_form().name, "bits per masked byte");
}

}  // namespace
}  // namespace longstride
