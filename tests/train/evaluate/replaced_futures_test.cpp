#include "framework/train/evaluate/replaced_futures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "framework/core/errors.h"
#include "tests/support/stream_run.h"

namespace longstride::test {
namespace {

// Four windows of 10 bytes, and a shorter one that is left out.
const auto text = std::make_shared<Text>(47);

std::vector<std::uint8_t> bytes_of(const SequenceSet& of, std::int64_t sequence, std::int64_t begin,
                                   std::int64_t count) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  of.read(sequence, begin, count, bytes.data());
  return bytes;
}

TEST(ReplacedFutures, AreThoseOfTheNextWindow) {
  const ReplacedFutures futures(text, 10, 4);
  EXPECT_EQ(futures.sequences(), 4 * 11);
  for (std::int64_t sequence = 0; sequence < futures.sequences(); ++sequence) {
    const std::int64_t window = sequence / 11, kept = sequence % 11 == 0 ? 10 : sequence % 11;
    std::vector<std::uint8_t> expected = bytes_of(*text, 0, 10 * window, kept);
    const auto behind = bytes_of(*text, 0, 10 * ((window + 1) % 4) + kept, 10 - kept);
    expected.insert(expected.end(), behind.begin(), behind.end());
    EXPECT_EQ(bytes_of(futures, sequence, 0, 10), expected) << sequence;
    EXPECT_EQ(bytes_of(futures, sequence, 3, 4), std::vector(expected.begin() + 3, expected.begin() + 7)) << sequence;
  }
}

TEST(ReplacedFutures, ALeakIsTheChangeAtThePositionAlone) {
  const ReplacedFutures futures(text, 10, 2);
  std::vector<float> losses(22 * 10, 1.0F);
  for (std::size_t position = 4; position < 10; ++position) losses[4 * 10 + position] = 7;  // position 3 is kept
  EXPECT_EQ(futures.leak(losses).largest, 0);
  losses[16 * 10 + 4] = 1.5F;  // the second window with what is behind position 4 replaced
  EXPECT_NEAR(futures.leak(losses).largest, 0.5 / std::log(2.0), 1e-12);
  EXPECT_NEAR(futures.leak(losses).mean, 0.5 / std::log(2.0) / 20, 1e-12);
}

TEST(ReplacedFutures, NeedTwoWindows) {
  EXPECT_THROW(ReplacedFutures(text, 24, 16), UserError);
  EXPECT_THROW(ReplacedFutures(text, 10, 1), UserError);
}

}  // namespace
}  // namespace longstride::test
