// The scan's CUDA kernels on emulated blocks.
#include <gtest/gtest.h>

#include "tests/emulated/emulated_scan.h"

namespace longstride::testing {
namespace {

using kernels::ScanForm;

// Both kinds of products; scan_slow.cpp has every form in every type.
TEST(EmulatedScans, AreAsExactAsTheRecurrence) {
  for (ScanShape s : {ScanShape{ScanForm::sum, ScanDecay::none, true, true, true},
                      ScanShape{ScanForm::gated, ScanDecay::head, true, false, true, true},
                      ScanShape{ScanForm::gated, ScanDecay::channel, false, false, false, true},
                      ScanShape{ScanForm::delta, ScanDecay::head, false, false, true, true}}) {
    s.n = 150, s.key_size = 18, s.value_size = 16;
    expect_the_recurrence(s, Dtype::f32);
    expect_the_recurrence(s, Dtype::bf16);
  }
  ScanShape weak{ScanForm::gated, ScanDecay::channel, false, false, false, true};
  weak.n = 150, weak.key_size = 18, weak.value_size = 16, weak.strength = 0.03, weak.extremes = false;
  expect_the_recurrence(weak, Dtype::bf16, 2);
  ScanShape run{ScanForm::gated, ScanDecay::head, true, false, true, true};
  run.n = 300, run.run = 256, run.key_size = 40, run.value_size = 24;
  expect_the_recurrence(run, Dtype::f16);
}

// The kernels for Hopper: with and without z, decays, documents and states, and heads that do not fill their tiles.
TEST(EmulatedScans, OfWideHeadsAreAsExactAsTheRecurrence) {
  ScanShape plain{ScanForm::sum, ScanDecay::none};
  plain.n = 190, plain.key_size = 256, plain.value_size = 64;
  expect_the_recurrence(plain, Dtype::bf16);
  ScanShape performer{ScanForm::gated, ScanDecay::head, true, false, true, true};
  performer.n = 300, performer.heads = 2, performer.run = 256, performer.key_size = 200, performer.value_size = 40;
  expect_the_recurrence(performer, Dtype::bf16);
  performer.known = true;
  expect_the_recurrence(performer, Dtype::bf16, 2);
}

}  // namespace
}  // namespace longstride::testing
