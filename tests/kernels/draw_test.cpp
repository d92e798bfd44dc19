#include "kernels/draw/draw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

namespace longstride::kernels {
namespace {

// Probabilities 0.4, 0.1, 0.3, 0.2 in this order.
const std::vector<double> logits = {std::log(0.4), std::log(0.1), std::log(0.3), std::log(0.2)};

std::map<int, double> shares(const Sampling& sampling) {
  std::map<int, double> found;
  const int draws = 20000;
  for (int i = 0; i < draws; ++i)
    found[cpu::draw_one(logits.data(), 4, sampling, uniform_for(sampling, i, 3))] += 1.0 / draws;
  return found;
}

void expect_shares(const Sampling& sampling, const std::map<int, double>& expected) {
  const std::map<int, double> found = shares(sampling);
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [byte, share] : expected) EXPECT_NEAR(found.contains(byte) ? found.at(byte) : 0.0, share, 0.012);
}

TEST(Draw, FollowsTheProbabilities) { expect_shares({}, {{0, 0.4}, {1, 0.1}, {2, 0.3}, {3, 0.2}}); }

TEST(Draw, TemperatureSharpensThem) {
  const double total = 0.16 + 0.01 + 0.09 + 0.04;
  expect_shares({0.5}, {{0, 0.16 / total}, {1, 0.01 / total}, {2, 0.09 / total}, {3, 0.04 / total}});
  expect_shares({0}, {{0, 1}});
}

TEST(Draw, TopKLeavesTheLikeliest) {
  expect_shares({1, 1}, {{0, 1}});
  expect_shares({1, 2}, {{0, 4.0 / 7}, {2, 3.0 / 7}});
  expect_shares({1, 9}, {{0, 0.4}, {1, 0.1}, {2, 0.3}, {3, 0.2}});
}

TEST(Draw, TopPLeavesTheFewestThatReachIt) {
  expect_shares({1, 0, 0}, {{0, 1}});
  expect_shares({1, 0, 0.39}, {{0, 1}});
  expect_shares({1, 0, 0.41}, {{0, 4.0 / 7}, {2, 3.0 / 7}});
  expect_shares({1, 0, 0.89}, {{0, 4.0 / 9}, {2, 3.0 / 9}, {3, 2.0 / 9}});
  expect_shares({1, 0, 0.91}, {{0, 0.4}, {1, 0.1}, {2, 0.3}, {3, 0.2}});
  // Two of the three bytes that top_k keeps have 0.7 / 0.9 of the remaining probability.
  expect_shares({1, 3, 0.75}, {{0, 4.0 / 7}, {2, 3.0 / 7}});
}

TEST(Draw, AmongEqualsTheSmallerByteComesFirst) {
  const std::vector<double> equal(5, 1.5);
  EXPECT_EQ(cpu::draw_one(equal.data(), 5, {0}, 0.9), 0);
  for (double uniform : {0.01, 0.49, 0.51, 0.99})
    EXPECT_EQ(cpu::draw_one(equal.data(), 5, {1, 2}, uniform), uniform < 0.5 ? 0 : 1);
}

TEST(Draw, OfLargeVocabulariesIdsHave16Bits) {
  std::vector<double> row(65535, 0.0);
  row[40000] = 20, row[65534] = 21;
  std::vector<std::uint16_t> ids = {300, 9, 9}, previous = {1};
  DrawArgs args;
  args.logits = {row.data(), Dtype::f64, {1, 65535}};
  args.bytes = {ids.data(), Dtype::u16, {1, 3}};
  args.previous = {previous.data(), Dtype::u16, {1, 1}};
  args.prompted = 1;
  args.sampling = {0};
  cpu::draw(args, {});
  EXPECT_EQ(previous[0], 300);
  args.position = 1;
  cpu::draw(args, {});
  row[65534] = 0;
  args.position = 2;
  cpu::draw(args, {});
  EXPECT_EQ(ids, (std::vector<std::uint16_t>{300, 65534, 40000}));
  EXPECT_EQ(previous[0], 40000);
}

TEST(Draw, KeepsThePromptAndReportsTheModelsProbabilities) {
  std::vector<double> rows = logits;
  rows.insert(rows.end(), logits.begin(), logits.end());
  std::vector<std::uint8_t> bytes = {3, 9, 1, 9}, previous(2);
  std::vector<float> logs(4, NAN);
  DrawArgs args;
  args.logits = {rows.data(), Dtype::f64, {2, 4}};
  args.bytes = {bytes.data(), Dtype::u8, {2, 2}};
  args.log_probabilities = {logs.data(), Dtype::f32, {2, 2}};
  args.previous = {previous.data(), Dtype::u8, {2, 1}};
  args.prompted = 1;
  args.sampling = {0};  // probabilities are reported as if at temperature 1
  cpu::draw(args, {});
  EXPECT_EQ(previous, (std::vector<std::uint8_t>{3, 1}));
  args.position = 1;
  cpu::draw(args, {});
  EXPECT_EQ(previous, (std::vector<std::uint8_t>{0, 0}));
  EXPECT_EQ(bytes, (std::vector<std::uint8_t>{3, 0, 1, 0}));
  const double expected[] = {0.2, 0.4, 0.1, 0.4};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(logs[i], std::log(expected[i]), 1e-6);
}

TEST(Draw, SequencesCountFromTheFirstOfTheBatch) {
  const Sampling sampling;
  EXPECT_NE(uniform_for(sampling, 0, 5), uniform_for(sampling, 1, 5));
  std::vector<double> flat(256, 0.0);
  std::vector<std::uint8_t> bytes(1), previous(1);
  DrawArgs args;
  args.logits = {flat.data(), Dtype::f64, {1, 256}};
  args.bytes = {bytes.data(), Dtype::u8, {1, 1}};
  args.previous = {previous.data(), Dtype::u8, {1, 1}};
  for (std::int64_t s = 0; s < 20; ++s) {
    args.first_sequence = s;
    cpu::draw(args, {});
    EXPECT_EQ(bytes[0], static_cast<int>(256 * uniform_for(sampling, s, 0)));
  }
}

}  // namespace
}  // namespace longstride::kernels
