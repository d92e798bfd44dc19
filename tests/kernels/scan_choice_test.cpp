// The choice of a scan's kernels, and the states that they save.
#include "kernels/scan/choice.h"

#include <gtest/gtest.h>

namespace longstride::kernels {
namespace {

using enum ScanForm;

ScanProblem problem(ScanForm form, bool channels, std::int64_t key_size, std::int64_t value_size) {
  return {form, Direction::past, Dtype::bf16, channels, 8, 65536, key_size, value_size};
}

TEST(ScanChoice, NamesTheSizeThatIsTooLarge) {
  const auto slow = [](const ScanProblem& p) { return fast_path_of(p).slowness; };
  EXPECT_EQ(slow(problem(gated, false, 256, 64)), ScanSlowness::none);
  EXPECT_EQ(slow(problem(gated, true, 64, 128)), ScanSlowness::none);
  EXPECT_EQ(slow(problem(delta, false, 128, 128)), ScanSlowness::none);
  EXPECT_EQ(slow(problem(delta, true, 64, 64)), ScanSlowness::channels);
  const ScanFastPath keys = fast_path_of(problem(sum, false, 512, 64)),
                     values = fast_path_of(problem(sum, false, 256, 128));
  EXPECT_EQ(keys.slowness, ScanSlowness::key_size);
  EXPECT_EQ(keys.below, 256);
  EXPECT_EQ(values.slowness, ScanSlowness::value_size);
  EXPECT_EQ(values.below, 64);
  ScanProblem both = problem(sum, false, 64, 64);
  both.direction = Direction::both;
  EXPECT_EQ(slow(both), ScanSlowness::direction);
}

TEST(ScanChoice, SavesFewerStatesWhereRunsAreManyAndLong) {
  ScanProblem p = problem(gated, false, 64, 64);
  EXPECT_EQ(scan_run(Device::cuda, p), 512);
  EXPECT_EQ(scan_states(Device::cuda, p), 128);
  EXPECT_EQ(scan_run(Device::cpu, p), scan_chunk);
  p.n = 2048;
  EXPECT_EQ(scan_run(Device::cuda, p), scan_chunk);
  p.units = 128;
  EXPECT_EQ(scan_run(Device::cuda, p), 512);
  p.dtype = Dtype::f32;
  EXPECT_EQ(scan_run(Device::cuda, p), scan_chunk);
}

}  // namespace
}  // namespace longstride::kernels
