// Training decoders with a memory: the properties of what rows remember; and of a compression, by attention
// reconstruction, apart from the loss of predictions.
#include <gtest/gtest.h>

#include "framework/models/decoder/decoder.h"
#include "tests/support/mixed_toys.h"
#include "tests/support/scan_toys.h"
#include "tests/support/stream_properties.h"
#include "tests/support/stream_run.h"

namespace longstride::test {

INSTANTIATE_TYPED_TEST_SUITE_P(DistanceAttention, StreamProperties, OnDevices<DistanceToy>, DeviceNames);
INSTANTIATE_TYPED_TEST_SUITE_P(Mixed, StreamProperties, OnDevices<MixedToy>, DeviceNames);
INSTANTIATE_TYPED_TEST_SUITE_P(Scan, StreamProperties, OnDevices<ScanToy>, DeviceNames);

namespace {

// The first stream has five windows: the second fills the memory, and from the third on rows are compressed.
std::vector<StepReport> reports_of(const DistanceToy& config, std::int64_t micro, std::int64_t steps) {
  StreamRun run(stream_training(micro, still), config);
  run.step.start();
  std::vector<StepReport> reports;
  for (std::int64_t s = 0; s < steps; ++s) {
    run.go(1);
    reports.push_back(run.step.report());
  }
  return reports;
}

TEST(CompressiveTraining, TheReconstructionLossIsReportedApartWhateverTheMicroBatches) {
  for (const Compression compress : {Compression::convolution, Compression::dilated}) {
    const DistanceToy config = compressive_toy(compress);
    DistanceToy half = config, without = config;
    half.memory.reconstruction = 0.5;
    without.memory.reconstruction = 0;
    const std::vector<StepReport> whole = reports_of(config, 4, 5), parts = reports_of(config, 1, 5),
                                  halved = reports_of(half, 4, 5), none = reports_of(without, 4, 5);
    for (std::size_t s = 0; s < whole.size(); ++s) {
      ASSERT_EQ(whole[s].auxiliary.size(), 1U);
      EXPECT_TRUE(none[s].auxiliary.empty());
      EXPECT_EQ(whole[s].auxiliary[0] > 0, s > 0) << s;
      EXPECT_NEAR(parts[s].auxiliary[0], whole[s].auxiliary[0], 1e-5 * whole[s].auxiliary[0]) << s;
      EXPECT_NEAR(halved[s].auxiliary[0], 0.5 * whole[s].auxiliary[0], 1e-6 * whole[s].auxiliary[0]) << s;
      EXPECT_EQ(halved[s].loss, whole[s].loss) << s;
      EXPECT_EQ(none[s].loss, whole[s].loss) << s;
    }
  }
}

TEST(CompressiveTraining, OnlyACompressionThatLearnsHasALoss) {
  for (const auto& [compress, count] :
       {std::pair{Compression::mean, 0U}, std::pair{Compression::max, 0U}, std::pair{Compression::most_used, 0U},
        std::pair{Compression::convolution, 1U}, std::pair{Compression::dilated, 1U}})
    EXPECT_EQ(Decoder(compressive_toy(compress)).auxiliary_losses().size(), count);
}

}  // namespace
}  // namespace longstride::test
