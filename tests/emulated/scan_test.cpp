// The scan's CUDA kernels on emulated blocks.
#include <gtest/gtest.h>

#include "tests/emulated/emulated_scan.h"

namespace longstride::testing {
namespace {

class EmulatedScans : public ::testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(In, EmulatedScans, ::testing::Values(Dtype::f32, Dtype::bf16, Dtype::f16),
                         [](const auto& i) { return kernels::name_of(i.param); });

TEST_P(EmulatedScans, AreAsExactAsTheRecurrence) {
  std::int64_t drawn = 0;
  for (ScanShape s : scan_shapes()) {
    ++drawn;
    s.n = 140 + drawn;
    s.key_size = drawn % 2 == 0 ? 16 : 24, s.value_size = drawn % 3 == 0 ? 16 : 21;
    expect_the_recurrence(s, GetParam());
  }
}

}  // namespace
}  // namespace longstride::testing
