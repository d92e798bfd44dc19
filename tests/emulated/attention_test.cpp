// Attention's CUDA kernels, forward and backward, run on emulated blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "tests/emulated/emulated_attention.h"
#include "tests/emulated/emulated_shapes.h"

namespace longstride::kernels {
namespace {

// Every kernel at least once; test_emulated_slow runs all shapes, each in many orders of events.
constexpr const char* one_or_two_of_each_kernel[] = {
    "local 65, n 321, heads 24/32",
    "block 256, n 400, heads 32/24",
    "local 193, n 450, heads 64/64",
    "block 100, n 333, heads 64/64",
    "block 250, n 520, heads 64/40",
    "block 500, n 600, heads 64/56",
    "local 60, n 300, heads 64/128",
    "block 100, n 333, heads 64/72",
    "column 3, n 400, heads 64/128",
    "strided, n 300, heads 32/32",
    "inclusive, n 400, heads 64/64",
    "dense, n 450, heads 64/64",
    "fixed 64, 16, n 333, heads 64/64",
    "fixed 128, 31, n 450, heads 24/32",
    "fixed 100, 25, n 333, heads 128/96",
    "dense, n 321, heads 32/24",
    "fixed 64, 16, n 100, heads 32/32",
    "local 7, n 200, heads 72/40",
    "local 129, n 700, heads 128/128",
    "block 100, n 333, heads 128/112",
    "local 100, 5 documents, n 333, heads 64/64",
    "local 100, intervals, n 333, heads 64/64",
    "both, strided, n 300, heads 64/64",
    "both, block window 100, n 450, heads 64/64",
    "both, shifted blocks, n 333, heads 64/64",
    "both, shifted blocks of tiles, n 192, heads 64/64",
    "both, dilated, n 300, heads 64/64",
    "both, shifted blocks, n 150, heads 32/32, f32",
    "dense, 8 documents, n 450, heads 64/64",
    "strided, 8 documents, n 301, heads 64/64",
    "fixed 64, 16, 8 documents, n 333, heads 64/64",
    "local 60, n 200, heads 32/32, bf16",
    "dense, n 131, heads 23/31, f16",
    "strided, n 180, heads 64/64, f32",
    "fixed 50, 7, n 150, heads 48/128, bf16",
    "inclusive, n 130, heads 64/35, f32",
    "local 100, 5 documents, n 200, heads 100/72, f16",
    "both, window and first keys, n 150, heads 32/32, f32",
    "both, dense, lists of 64, n 1300, heads 64/64",
    "both, dense, intervals, lists of 128, n 700, heads 64/64",
    "both, dense, lists of 64, n 900, heads 128/128",
    "dense, lists of 64, n 333, heads 32/32, f32",
    "both, dense, 8 documents, lists of 64, n 333, heads 64/64, bf16",
    "dense, lists of 64, 14 labels, n 200, heads 64/64, f32",
    "fixed 50, 7, 60 places, n 150, heads 32/32, bf16",
    "strided, 14 labels, n 130, heads 64/64, bf16",
    "column 3, 5 documents, 9 places, n 200, heads 100/72, f16",
    "both, local 101, 25 labels, n 450, heads 64/64",
    "both, local 101, 5 documents, 49 labels, n 333, heads 48/64",
    "both, dense, 2 labels, 4 on 2, n 300, heads 64/64",
    "both, dense, 2 labels, queries 37, n 450, heads 64/64",
    "both, dense, intervals, 2 labels, queries 450, n 70, heads 64/64",
    "both, dense, 7 labels, queries 130, n 333, heads 64/64",
    "both, dense, intervals, queries 200, n 65, heads 40/64",
    "both, dense, 2 labels, queries 70, n 1600, heads 64/64",
    "both, dense, queries 16, n 1610, heads 64/64",
    "both, window and first keys, n 1100, heads 64/64",
    "both, dense, intervals, 25 labels, queries 1600, n 70, heads 64/56",
    "local 65, 4 on 1, n 321, heads 24/32",
    "local 193, 4 on 2, n 333, heads 64/64",
    "column 3, 6 on 2, n 400, heads 64/64",
    "dense, 2 on 1, n 450, heads 64/64",
    "strided, 4 on 2, n 300, heads 64/64",
    "fixed 100, 25, 2 on 1, n 333, heads 128/96",
    "both, local 129, 4 on 2, n 333, heads 64/64",
    "both, dense, 8 documents, lists of 64, 2 on 1, n 333, heads 64/64",
    "strided, 4 on 2, n 131, heads 23/31, bf16",
    "dense, lists of 64, 2 on 1, n 131, heads 64/64, f32",
    "column 3, 14 labels, 4 on 2, n 130, heads 64/64, bf16",
};

std::vector<EmulatedShape> fast_shapes() {
  const std::vector<EmulatedShape> all = emulated_shapes();
  std::vector<EmulatedShape> fast;
  for (const char* name : one_or_two_of_each_kernel) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& s) { return s.with_sizes() == name; });
    if (found == all.end()) throw std::invalid_argument(std::string("there is no shape ") + name);
    fast.push_back(*found);
  }
  return fast;
}

class EmulatedKernels : public ::testing::TestWithParam<EmulatedShape> {};

TEST_P(EmulatedKernels, AreAsGoodAsNaive) { expect_right_in_every_run(GetParam(), {{3, 1}}); }

INSTANTIATE_TEST_SUITE_P(Shapes, EmulatedKernels, ::testing::ValuesIn(fast_shapes()),
                         [](const auto& test) { return test.param.test_name(); });

}  // namespace
}  // namespace longstride::kernels
