#include "tests/ops/scan/scan_case.h"

namespace longstride::testing::scan_test {
namespace {

INSTANTIATE_TEST_SUITE_P(On, ScanTest, ::testing::ValuesIn(precisions, precisions + 2),
                         [](const auto& i) { return name_of(i.param); });

TEST_P(ScanTest, AMillionPositionsAreAsExactAsTheRecurrence) {
  ScanShape s{kernels::ScanForm::gated, ScanDecay::head, false, false, false, true};
  s.n = 1 << 20, s.key_size = 16, s.value_size = 8, s.strength = 1e-4;
  expect_the_recurrence(s);
}

}  // namespace
}  // namespace longstride::testing::scan_test
