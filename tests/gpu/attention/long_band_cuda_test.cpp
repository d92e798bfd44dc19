// Attention backward over long bands, and over own blocks and summary rows. AttentionPath::sm90 gives every short
// class a block, however few there are.
#include <gtest/gtest.h>

#include <tuple>

#include "kernels/base/gpu_kind.h"
#include "tests/gpu/attention/attention_cuda_reference.h"

namespace longstride::kernels {
namespace {

using enum Integration;
using enum PartKind;

class LongBandCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    LONGSTRIDE_NEEDS_GPU();
    if (!cuda::is_hopper()) GTEST_SKIP() << "the kernel is for Hopper";
  }

  template <class T>
  void expect_equals_reference(const NamedPattern& p, const AttentionShape& shape, Dtype dtype, bool packed = true) {
    const auto masks = masks_of(p.pattern, p.heads, 0, shape.n);
    const auto plan = make_plan(p.pattern, 0, p.heads, shape.n);
    const AttentionInput in(shape, dtype);
    DeviceAttention<T> call(*plan, in, AttentionPath::sm90, packed);
    ASSERT_TRUE(call.is_long_band());
    call.run();
    expect_as_good_as_naive(call.result(), dense_attention<float>(in, masks, dtype),
                            dense_attention<double>(in, masks, Dtype::f64), in,
                            p.name + ", " + name_of(dtype) + ", n " + std::to_string(shape.n));
  }

 private:
  Threads threads_{std::min(omp_get_max_threads(), 8)};
};

// Short classes, which keep dQ in shared memory, and longer ones, whose blocks take turns: key tiles that one query
// tile sees and that all do, ragged ends of key tiles of 128 and 192 rows, and more classes than are side by side.
TEST_F(LongBandCuda, EveryShapeIsAsGoodAsNaive) {
  for (const auto& [n, l, window, kind] : {std::tuple{700, 330, 330, local},
                                           {1100, 512, 513, local},
                                           {1630, 1024, 1024, local},
                                           {700, 600, 0, fixed_block},
                                           {1301, 2, 0, column},
                                           {1301, 3, 0, column},
                                           {513, 1, 0, dense},
                                           {576, 1, 0, dense},
                                           {577, 1, 0, dense},
                                           {450, 1, 0, dense}}) {
    const NamedPattern p{name_of(kind) + (" " + std::to_string(l)), pattern_of(merged, {kind}, l, {}, window), 2};
    expect_equals_reference<__nv_bfloat16>(p, {1, n, p.heads, 64, 64}, Dtype::bf16);
    expect_equals_reference<__half>(p, {2, n, p.heads, 40, 48}, Dtype::f16, false);
    expect_equals_reference<__nv_bfloat16>(p, {1, n, p.heads, 24, 32}, Dtype::bf16);
    expect_equals_reference<__nv_bfloat16>(p, {1, n, p.heads, 128, 128}, Dtype::bf16);
    if (HasFailure()) return;
  }
  expect_equals_reference<__nv_bfloat16>({"dense", pattern_of(merged, {dense}, 0), 4}, {9, 530, 4, 64, 64},
                                         Dtype::bf16);
}

// Keys of more than 64 have a kernel for narrow bands in the forward pass alone, for up to four key tiles.
TEST_F(LongBandCuda, NarrowBandsOfLargeHeadsAreAsGoodAsNaive) {
  for (const auto& [n, l, window, kind] : {std::tuple{450, 1, 1, local},
                                           {500, 64, 64, local},
                                           {611, 100, 101, local},
                                           {1000, 128, 129, local},
                                           {777, 192, 193, local},
                                           {900, 256, 257, local},
                                           {700, 100, 0, fixed_block},
                                           {640, 192, 0, fixed_block},
                                           {1301, 7, 0, column},
                                           {900, 40, 0, column}}) {
    const NamedPattern p{name_of(kind) + (" " + std::to_string(l)), pattern_of(merged, {kind}, l, {}, window), 2};
    expect_equals_reference<__nv_bfloat16>(p, {1, n, p.heads, 128, 128}, Dtype::bf16);
    expect_equals_reference<__half>(p, {2, n, p.heads, 72, 104}, Dtype::f16, false);
    expect_equals_reference<__nv_bfloat16>(p, {1, n, p.heads, 96, 64}, Dtype::bf16);
    if (HasFailure()) return;
  }
}

PatternConfig fixed(std::int64_t l, std::int64_t c) {
  return with_options(pattern_of(merged, {fixed_block, fixed_summary}, l, {c}), true, false);
}

// Own blocks and summary rows: few and many summary rows, a block that is incomplete, and heads whose summary rows
// begin where the block does.
TEST_F(LongBandCuda, EveryJoinedShapeIsAsGoodAsNaive) {
  for (const auto& [l, c, n] : {std::tuple{64, 16, 700},
                                {128, 32, 128},
                                {128, 32, 641},
                                {128, 32, 1300},
                                {128, 2, 900},
                                {192, 64, 1000},
                                {256, 128, 1090},
                                {320, 4, 1301},
                                {128, 31, 1290},
                                {100, 25, 1001},
                                {100, 20, 900},
                                {222, 10, 1333},
                                {300, 75, 1234},
                                {50, 6, 777}}) {
    const NamedPattern p{"fixed " + std::to_string(l) + ", " + std::to_string(c), fixed(l, c),
                         std::max(std::min(l / c, 4), 2)};
    expect_equals_reference<__nv_bfloat16>(p, {1, n, p.heads, 64, 64}, Dtype::bf16);
    expect_equals_reference<__half>(p, {2, n, p.heads, 40, 48}, Dtype::f16, false);
    expect_equals_reference<__nv_bfloat16>(p, {1, n, p.heads, 24, 32}, Dtype::bf16);
    expect_equals_reference<__nv_bfloat16>(p, {1, n, p.heads, 128, 80}, Dtype::bf16);
    if (HasFailure()) return;
  }
  expect_equals_reference<__nv_bfloat16>({"fixed 128, 32", fixed(128, 32), 4}, {9, 530, 4, 64, 64}, Dtype::bf16);
}

// For compute-sanitizer (sanitize.sh).
TEST_F(LongBandCuda, TinyShapesAreAsGoodAsNaive) {
  expect_equals_reference<__nv_bfloat16>({"local 400", pattern_of(merged, {local}, 0, {}, 400), 1},
                                         {1, 1090, 1, 64, 64}, Dtype::bf16);
  expect_equals_reference<__half>({"column 2", pattern_of(merged, {column}, 2), 1}, {1, 1000, 1, 64, 64}, Dtype::f16);
  expect_equals_reference<__nv_bfloat16>({"fixed 64, 32", fixed(64, 32), 2}, {1, 500, 2, 64, 64}, Dtype::bf16);
  expect_equals_reference<__nv_bfloat16>({"fixed 100, 25", fixed(100, 25), 2}, {1, 500, 2, 64, 64}, Dtype::bf16);
  expect_equals_reference<__nv_bfloat16>({"dense", pattern_of(merged, {dense}, 0), 1}, {1, 530, 1, 32, 32},
                                         Dtype::bf16);
  expect_equals_reference<__half>({"fixed 64, 32", fixed(64, 32), 2}, {1, 500, 2, 32, 32}, Dtype::f16);
  expect_equals_reference<__nv_bfloat16>({"local 400", pattern_of(merged, {local}, 0, {}, 400), 1},
                                         {1, 700, 1, 128, 128}, Dtype::bf16);
}

// Sums whose places are used again and again, and short visits, whose memory is filled again as soon as it has been
// read. Too large for the definition: 16-bit and f32 of the portable kernels stand for it.
TEST_F(LongBandCuda, LongSequencesAreAsGoodAsPortableAndRepeatToTheBit) {
  const std::int64_t heads = 8, n = 16384;
  const auto window = [](std::int64_t w) { return pattern_of(merged, {local}, 0, {}, w); };
  for (const auto& [where, pattern, size] : {std::tuple{"local 400", window(400), 64},
                                             {"local 512", window(512), 64},
                                             {"local 512", window(512), 128},
                                             {"local 1000", window(1000), 64},
                                             {"local 512", window(512), 32},
                                             {"fixed", fixed(128, 32), 32},
                                             {"dense", pattern_of(merged, {dense}, 0), 32},
                                             {"dense", pattern_of(merged, {dense}, 0), 64},
                                             {"dense", pattern_of(merged, {dense}, 0), 128},
                                             {"fixed", fixed(128, 32), 64},
                                             {"fixed", fixed(128, 32), 128}}) {
    const auto plan = make_plan(pattern, 0, heads, n);
    const AttentionInput in({1, n, heads, size, size}, Dtype::bf16);
    DeviceAttention<__nv_bfloat16> call(*plan, in, AttentionPath::sm90, true),
        portable(*plan, in, AttentionPath::portable, true);
    DeviceAttention<float> exact(*plan, in, AttentionPath::portable, true);
    ASSERT_TRUE(call.is_long_band());
    call.run();
    portable.run();
    exact.run();
    expect_as_good_as_naive(call.result(), portable.result(), exact.result(), in, where);
    const auto first = call.written().gradients;
    for (int i = 1; i < 10; ++i) {
      call.poison();
      call.run();
      const auto again = call.written().gradients;
      ASSERT_EQ(std::memcmp(again.data(), first.data(), first.size() * sizeof first[0]), 0) << where;
    }
  }
}

}  // namespace
}  // namespace longstride::kernels
