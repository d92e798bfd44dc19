// The scan's CUDA kernels on emulated blocks, in every size.
#include <gtest/gtest.h>

#include "tests/emulated/emulated_scan.h"

namespace longstride::testing {
namespace {

using kernels::ScanForm;

class EmulatedScansOften : public ::testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(In, EmulatedScansOften, ::testing::Values(Dtype::f32, Dtype::bf16, Dtype::f16),
                         [](const auto& i) { return kernels::name_of(i.param); });

TEST_P(EmulatedScansOften, EveryFormIsAsExactAsTheRecurrence) {
  std::int64_t drawn = 0;
  for (ScanShape s : scan_shapes()) {
    ++drawn;
    s.n = 140 + drawn;
    s.key_size = drawn % 2 == 0 ? 16 : 24, s.value_size = drawn % 3 == 0 ? 16 : 21;
    expect_the_recurrence(s, GetParam());
  }
}

TEST_P(EmulatedScansOften, HeadsOfEverySizeAreAsExactAsTheRecurrence) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> sizes = {{64, 64},  {16, 128}, {100, 64}, {128, 40},
                                                                    {256, 16}, {72, 80},  {1, 1},    {33, 161}};
  std::size_t drawn = 0;
  for (ScanShape s : scan_shapes()) {
    if (s.groups != s.states) continue;
    std::tie(s.key_size, s.value_size) = sizes[drawn++ % sizes.size()];
    // In a few channels keys are alike, and rounding a chunk's equations costs more than rounding the recurrence.
    if (s.form == ScanForm::delta) s.key_size = std::max<std::int64_t>(s.key_size, 32);
    s.n = 290;
    expect_the_recurrence(s, GetParam());
  }
}

TEST_P(EmulatedScansOften, RaggedLengthsAreAsExactAsTheRecurrenceInEveryOrder) {
  for (ScanShape s : {ScanShape{ScanForm::sum, ScanDecay::none, true, true, true},
                      ScanShape{ScanForm::gated, ScanDecay::head, true, false, true, true},
                      ScanShape{ScanForm::gated, ScanDecay::channel, false, false, false, true},
                      ScanShape{ScanForm::delta, ScanDecay::head, false, false, true, true},
                      ScanShape{ScanForm::delta, ScanDecay::channel, false, false, false, true}})
    for (const std::int64_t n : {1, 63, 128, 129, 400}) {
      s.n = n, s.key_size = 20, s.value_size = 17, s.batch = 1 + n % 2, s.heads = 2;
      expect_the_recurrence(s, GetParam(), n == 129 ? 3 : 1);
    }
}

TEST_P(EmulatedScansOften, StrongDecaysAreAsExactAsTheRecurrence) {
  for (ScanShape s : scan_shapes()) {
    if (s.decay == ScanDecay::none || !s.groups || !s.states) continue;
    s.n = 260, s.strength = 40, s.key_size = s.value_size = 8;
    expect_the_recurrence(s, GetParam());
  }
}

// Roundings do not average over few values.
TEST_P(EmulatedScansOften, SmallHeadsAreAsExactAsTheRecurrence) {
  for (ScanShape s : scan_shapes()) {
    if (s.both || s.groups != s.states) continue;
    s.n = 262, s.key_size = 15, s.value_size = 2;
    if (s.form == ScanForm::delta) s.key_size = 32;
    expect_the_recurrence(s, GetParam());
    s.n = 63, s.key_size = 9, s.value_size = 6;
    if (s.form == ScanForm::delta) s.key_size = 32;
    expect_the_recurrence(s, GetParam());
    // As many scores as keep chance out of their errors.
    s.n = 1, s.batch = s.heads = 4, s.key_size = 18, s.value_size = 4;
    expect_the_recurrence(s, GetParam());
  }
}

// Down to decays over a chunk that are just weak; the last ones are strong in f16.
TEST_P(EmulatedScansOften, WeakDecaysPerChannelAreAsExactAsTheRecurrenceInEveryOrder) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> sizes = {{64, 64}, {128, 64}, {64, 128}, {33, 21}};
  for (const auto& [key_size, value_size] : sizes)
    for (const double strength : {0.0, 0.03, 0.4}) {
      ScanShape s{ScanForm::gated, ScanDecay::channel, key_size == value_size, false, false, true};
      s.n = 700, s.run = 256, s.key_size = key_size, s.value_size = value_size;
      s.strength = strength, s.extremes = false;
      expect_the_recurrence(s, GetParam(), 2);
    }
}

// A block carries its state over several chunks, and the last has fewer.
TEST_P(EmulatedScansOften, LongRunsAreAsExactAsTheRecurrenceInEveryOrder) {
  std::int64_t drawn = 0;
  for (ScanShape s : {ScanShape{ScanForm::sum, ScanDecay::none, true, false, true, true}, ScanShape{ScanForm::sum},
                      ScanShape{ScanForm::gated, ScanDecay::head, true, false, true, true},
                      ScanShape{ScanForm::gated, ScanDecay::head, false, false, false, true},
                      ScanShape{ScanForm::gated, ScanDecay::channel, true, false, true, true},
                      ScanShape{ScanForm::gated, ScanDecay::channel},
                      ScanShape{ScanForm::gated, ScanDecay::channel, true, false, false, true},
                      ScanShape{ScanForm::delta, ScanDecay::none, false, false, true, true},
                      ScanShape{ScanForm::delta, ScanDecay::head, false, false, false, true},
                      ScanShape{ScanForm::delta, ScanDecay::channel, false, false, true, true}}) {
    const bool odd = ++drawn % 2 != 0;
    s.run = odd ? 512 : 256, s.n = odd ? 700 : 590, s.strength = 0.03;
    s.key_size = odd ? 64 : 128, s.value_size = 64;
    s.extremes = s.groups;  // without them decays per channel are weak
    expect_the_recurrence(s, GetParam(), 2);
  }
}

// The largest tiles that a block has.
TEST_P(EmulatedScansOften, StatesOfThePerformerAreAsExactAsTheRecurrence) {
  ScanShape s{ScanForm::gated, ScanDecay::head, true, false, true, true};
  s.n = 200, s.key_size = 512, s.value_size = 128;
  expect_the_recurrence(s, GetParam());
}

}  // namespace
}  // namespace longstride::testing
