// Rows remember on several ranks what they remember on one.
#include <gtest/gtest.h>

#include "framework/comm/collectives.h"
#include "tests/distributed/devices.h"
#include "tests/support/distance_toys.h"
#include "tests/support/stream_run.h"

namespace longstride::testing {
namespace {

using test::DistanceToy;
using test::still;
using test::stream_training;
using test::StreamRun;

constexpr std::int64_t rows_of_a_rank = 3;

class StreamsOnRanks : public OnRanks {
 protected:
  void SetUp() override {
    OnRanks::SetUp();
    if (IsSkipped()) return;
    for (auto& [name, config] : test::Toys<DistanceToy>::configs()) {
      if (!config.remembers()) continue;
      config.dropout = 0.3;
      toys_.push_back({name, config});
    }
    ASSERT_FALSE(toys_.empty());
  }
  std::vector<test::NamedConfig<DistanceToy>> toys_;
};

// Micro-batches of one row have the same products on any rank.
TEST_F(StreamsOnRanks, RowsRememberTheSameBits) {
  for (const auto& [name, config] : toys_) {
    const TrainConfig train = stream_training(1, still, rows_of_a_rank * world().size());
    StreamRun one(train, config, device()), all(train, config, device(), &world());
    for (StreamRun* run : {&one, &all}) {
      run->step.start();
      run->go(7);  // into the second stream
    }
    const std::int64_t first = all.first_row();
    EXPECT_TRUE(all.remembered(0, rows_of_a_rank) == one.remembered(first, first + rows_of_a_rank)) << name;
  }
}

TEST_F(StreamsOnRanks, LossesAndGradientsAreThoseOfOneRank) {
  for (const auto& [name, config] : toys_) {
    TrainConfig train = stream_training(0, 1e-3, rows_of_a_rank * world().size());
    train.precision = Precision::fp32;
    StreamRun one(train, config, device()), all(train, config, device(), &world());
    for (StreamRun* run : {&one, &all}) run->step.start();
    for (int i = 0; i < 8; ++i) {
      for (StreamRun* run : {&one, &all}) run->go(1);
      const StepReport a = one.step.report(), b = all.step.report();
      ASSERT_NEAR(b.loss, a.loss, 1e-5 * a.loss) << name << ", step " << i;
      EXPECT_NEAR(b.scalars.gradient_norm, a.scalars.gradient_norm, 1e-4 * a.scalars.gradient_norm) << name << " " << i;
    }
  }
}

}  // namespace
}  // namespace longstride::testing
