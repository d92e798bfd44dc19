#include "tests/ops/scan/scan_case.h"

namespace longstride::testing::scan_test {
namespace {

LONGSTRIDE_OP_TESTS(ScanTest);

TEST_P(ScanTest, AMillionPositionsAreAsExactAsTheRecurrence) {
  ScanShape s{kernels::ScanForm::gated, ScanDecay::head, false, false, false, true};
  s.n = 1 << 20, s.strength = 1e-4;
  s.key_size = device() == kernels::Device::cuda ? 16 : 4, s.value_size = 8;
  expect_the_recurrence(s);
}

}  // namespace
}  // namespace longstride::testing::scan_test
