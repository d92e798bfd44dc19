// Attention backward over long bands, whose kernel AttentionPath::sm90 takes however few blocks a test's shape keeps
// busy.
#include <gtest/gtest.h>

#include <tuple>

#include "kernels/attention/sm90/band/long_band_plan.h"
#include "kernels/base/gpu_kind.h"
#include "tests/gpu/attention_cuda_reference.h"

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

// One chunk of 512 queries and several, key tiles that are visited once and up to three times, runs that begin and end
// within a segment, and ragged ends of all of them.
TEST_F(LongBandCuda, EveryShapeIsAsGoodAsNaive) {
  for (const auto& [n, l, window, kind] : {std::tuple{700, 330, 330, local},
                                           {1100, 512, 513, local},
                                           {1630, 1024, 1024, local},
                                           {700, 600, 0, fixed_block},
                                           {1301, 2, 0, column},
                                           {450, 1, 0, dense}}) {
    const NamedPattern p{name_of(kind) + (" " + std::to_string(l)), pattern_of(merged, {kind}, l, {}, window), 2};
    expect_equals_reference<__nv_bfloat16>(p, {1, n, p.heads, 64, 64}, Dtype::bf16);
    expect_equals_reference<__half>(p, {2, n, p.heads, 40, 48}, Dtype::f16, false);
    if (HasFailure()) return;
  }
}

// For compute-sanitizer (sanitize.sh).
TEST_F(LongBandCuda, TinyShapesAreAsGoodAsNaive) {
  expect_equals_reference<__nv_bfloat16>({"local 400", pattern_of(merged, {local}, 0, {}, 400), 1},
                                         {1, 1090, 1, 64, 64}, Dtype::bf16);
  expect_equals_reference<__half>({"column 2", pattern_of(merged, {column}, 2), 1}, {1, 1090, 1, 64, 64}, Dtype::f16);
}

// Where visits have one or two query tiles, memory is filled again as soon as it has been read.
TEST_F(LongBandCuda, ShortVisitsRepeatToTheBit) {
  const std::int64_t heads = 8, n = 16384;
  for (const std::int64_t window : {400, 512, 1000}) {
    const auto plan = make_plan(pattern_of(merged, {local}, 0, {}, window), 0, heads, n);
    const AttentionInput in({1, n, heads, 64, 64}, Dtype::bf16);
    DeviceAttention<__nv_bfloat16> call(*plan, in, AttentionPath::sm90, true);
    ASSERT_TRUE(call.is_long_band());
    call.run();
    const auto first = call.written().gradients;
    for (int i = 1; i < 10; ++i) {
      call.poison();
      call.run();
      const auto again = call.written().gradients;
      ASSERT_EQ(std::memcmp(again.data(), first.data(), first.size() * sizeof first[0]), 0) << "window " << window;
    }
  }
}

}  // namespace
}  // namespace longstride::kernels
