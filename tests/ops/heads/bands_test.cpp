// Targets and scores of a vocabulary in bands.
#include "kernels/bands/bands.h"

#include <map>

#include "tests/ops/op_test.h"

namespace longstride::testing::bands_test {
namespace {

using kernels::BandEdges;
using kernels::BandScoresArgs;
using kernels::BandTargetsArgs;

class BandsTest : public OpTest {};
LONGSTRIDE_OP_TESTS(BandsTest);

const BandEdges edges{{3, 4, 200}, 3};  // bands of 260 ids

// The first choice has three clusters and then its own ids.
TEST_P(BandsTest, EveryIdIsAskedOfTheFirstChoiceAndOfItsBand) {
  const std::vector<double> targets = {0, 2, 3, 4, 199, 200, 259};
  const std::map<int, std::vector<double>> places = {{0, {3, 5, 0, 1, 1, 2, 2}},
                                                     {1, {0, 0, 0, 0, 0, 0, 0}},
                                                     {2, {0, 0, 0, 0, 195, 0, 0}},
                                                     {3, {0, 0, 0, 0, 0, 0, 59}}};
  const std::map<int, std::vector<double>> asked = {
      {0, {1, 1, 1, 1, 1, 1, 1}}, {1, {0, 0, 1, 0, 0, 0, 0}}, {2, {0, 0, 0, 1, 1, 0, 0}}, {3, {0, 0, 0, 0, 0, 1, 1}}};
  const Operand wide = with_values({7}, Dtype::u16, targets);
  const Operand weights = with_values({7}, Dtype::f32, {0.5, 1, 2, 0, 3, 4, 5});
  for (int band = 0; band < 4; ++band)
    for (const bool weighted : {false, true}) {
      Operand place = filled({7}, Dtype::u16, 9999), share = result({7}, Dtype::f32);
      BandTargetsArgs args{.targets = wide, .places = place, .asked = share, .edges = edges, .band = band};
      if (weighted) args.weights = weights;
      run(args, {&place, &share});
      EXPECT_EQ(place.found(), places.at(band)) << band;
      std::vector<double> expected = asked.at(band);
      for (std::size_t i = 0; i < expected.size() && weighted; ++i)
        expected[i] *= weights.at(static_cast<std::int64_t>(i));
      EXPECT_EQ(share.found(), expected) << band;
    }
}

TEST_P(BandsTest, IdsMayBeBytes) {
  const Operand targets = with_values({3}, Dtype::u8, {2, 255, 200});
  Operand place = filled({3}, Dtype::u8, 99), share = result({3}, Dtype::f32);
  run(BandTargetsArgs{.targets = targets, .places = place, .asked = share, .edges = edges, .band = 3},
      {&place, &share});
  EXPECT_EQ(place.found(), (std::vector<double>{0, 55, 0}));
  EXPECT_EQ(share.found(), (std::vector<double>{0, 1, 1}));
}

// Scores of a band, whose exponentials add up to the exponential of its cluster's.
TEST_P(BandsTest, ScoresOfABandShareItsClusters) {
  for (const std::int64_t ids : {1, 7, 1000}) {
    constexpr std::int64_t rows = 37, clusters = 3, cluster = 1, before = 5;
    const Operand x = normals({rows, ids}, exact(), 1, 6), of_clusters = normals({rows, clusters}, exact(), 2, 3);
    Operand y = result({rows, before + ids}, exact());
    repeat(
        [&](Context& c) {
          ops::run(c, BandScoresArgs{x, of_clusters, y->slice(1, before, before + ids), cluster});
        },
        {&y});
    const std::vector<double> all = y.found();
    std::vector<double> found;
    for (std::int64_t i = 0; i < rows * (before + ids); ++i) {
      const double one = all[static_cast<std::size_t>(i)];
      if (i % (before + ids) >= before)
        found.push_back(one);
      else
        EXPECT_TRUE(std::isnan(one) || !poisons());
    }
    expect_as_exact_as_plain("scores", exact(), found, [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> out;
      for (std::int64_t r = 0; r < rows; ++r) {
        T most = static_cast<T>(x.at(r * ids)), sum = 0;
        for (std::int64_t j = 0; j < ids; ++j) most = std::max(most, static_cast<T>(x.at(r * ids + j)));
        for (std::int64_t j = 0; j < ids; ++j) sum += std::exp(static_cast<T>(x.at(r * ids + j)) - most);
        for (std::int64_t j = 0; j < ids; ++j)
          out.push_back(static_cast<T>(x.at(r * ids + j)) - most - std::log(sum) +
                        static_cast<T>(of_clusters.at(r * clusters + cluster)));
      }
      return out;
    });
  }
}

TEST_P(BandsTest, RefusesWhatDoesNotFit) {
  const Operand x = normals({4, 8}, exact(), 1), clusters = normals({4, 2}, exact(), 2), y = result({4, 8}, exact());
  EXPECT_THROW(ops::run(ctx, BandScoresArgs{x, clusters, y, 2}), InternalError);
  EXPECT_THROW(ops::run(ctx, BandScoresArgs{x, normals({3, 2}, exact(), 2), y, 0}), InternalError);
  const Operand targets = with_values({3}, Dtype::u8, {2, 255, 200}), place = filled({3}, Dtype::u16, 0);
  const Operand share = result({3}, Dtype::f32);
  EXPECT_THROW(ops::run(ctx, BandTargetsArgs{.targets = targets, .places = place, .asked = share, .edges = edges}),
               InternalError);
}

}  // namespace
}  // namespace longstride::testing::bands_test
