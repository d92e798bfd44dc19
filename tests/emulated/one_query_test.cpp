// One query whose keys are divided among blocks, on emulated blocks, compared with a naive call.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/choice.h"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_types.cuh"
#include "tests/kernels/attention_patterns.h"
#include "tests/support/as_good_as_naive.h"

namespace longstride::kernels::one_query_test {
namespace {

template <class T>
std::vector<T> elements(const std::vector<double>& x) {
  std::vector<T> out;
  for (const double e : x) out.push_back(cuda::from_float<T>(static_cast<float>(e)));
  return out;
}

// begin: the first key that queries see; the last one they do not.
template <class T>
void expect_right(const NamedPattern& p, std::int64_t layer, const AttentionShape& shape, std::int32_t begin) {
  constexpr Dtype dtype = DtypeOf<T>::value;
  const AttentionInput in(shape, dtype);
  const auto n = static_cast<std::int32_t>(shape.n), end = begin > 0 ? n - 1 : n;
  auto masks = masks_of(p.pattern, shape.heads, layer, shape.n);
  for (Mask& mask : masks) {
    mask.erase(mask.begin(), mask.end() - 1);
    std::erase_if(mask[0], [&](std::int32_t j) { return j < begin || j >= end; });
  }
  const std::vector<double> logits = sinks_of(shape);
  const AttentionResult exact = dense_attention<double>(in, masks, Dtype::f64, logits),
                        naive = dense_attention<float>(in, masks, dtype, logits);
  std::vector<T> q = elements<T>(in.q), k = elements<T>(in.k), v = elements<T>(in.v),
                 o(in.dout.size(), cuda::from_float<T>(std::numeric_limits<float>::quiet_NaN()));
  std::vector<float> lse(static_cast<std::size_t>(shape.rows()), std::numeric_limits<float>::quiet_NaN()),
      sink(logits.begin(), logits.end());
  std::vector<std::int32_t> begins(static_cast<std::size_t>(shape.batch), begin), ends(begins.size(), end);
  const auto rows = [&](std::vector<T>& x, std::int64_t count, std::int64_t heads, std::int64_t size) {
    return Tensor(x.data(), dtype, {shape.batch, count, heads, size});
  };
  const auto plan = make_plan(p.pattern, layer, shape.heads, shape.n, {}, 1);
  const std::int64_t key_heads = shape.heads_of_keys();
  AttentionArgs args{.plan = plan.get(),
                     .q = rows(q, 1, shape.heads, shape.key_size),
                     .k = rows(k, shape.n, key_heads, shape.key_size),
                     .v = rows(v, shape.n, key_heads, shape.value_size),
                     .o = rows(o, 1, shape.heads, shape.value_size),
                     .lse = Tensor(lse.data(), Dtype::f32, {shape.batch, shape.heads, 1}),
                     .scale = shape.scale()};
  if (!sink.empty()) args.sink = Tensor(sink.data(), Dtype::f32, {shape.heads});
  const auto bounds = [&](std::vector<std::int32_t>& x) { return Tensor(x.data(), Dtype::i32, {shape.batch, 1, 1}); };
  if (begin > 0) args.bounds = {bounds(begins), bounds(ends)};
  ASSERT_EQ(choose(args).family, AttentionFamily::one_query);
  const std::size_t words = args.scratch_on(Device::cuda).bytes() / sizeof(float);
  constexpr float untouched = 1.25e30f;
  std::vector<float> scratch(words + 64, untouched);
  args.scratch = Tensor(scratch.data(), Dtype::u8, args.scratch_on(Device::cuda).shape());
  cuda::emulation = {7, 3};
  cuda::attention(args, {});
  const std::string where = p.name + ", layer " + std::to_string(layer) + ", n " + std::to_string(n) + ", " +
                            std::to_string(shape.heads) + " heads on " + std::to_string(key_heads) + ", sizes " +
                            std::to_string(shape.key_size) + " and " + std::to_string(shape.value_size) + ", begin " +
                            std::to_string(begin);
  EXPECT_EQ(std::count(scratch.begin() + static_cast<std::ptrdiff_t>(words), scratch.end(), untouched), 64) << where;
  std::vector<double> found;
  for (const T e : o) found.push_back(static_cast<double>(cuda::to_float(e)));
  expect_as_good_as_naive("o", found, naive.o, exact.o, dtype, exact.o_terms, where);
  expect_as_good_as_naive("lse", {lse.begin(), lse.end()}, naive.lse, exact.lse, Dtype::f32, exact.lse_terms, where);
}

TEST(EmulatedOneQuery, IsAsGoodAsNaiveForEveryPattern) {
  constexpr std::int64_t sizes[][2] = {{64, 64}, {23, 31}, {128, 128}, {48, 128}, {32, 24}};
  int turn = 0;
  for (const NamedPattern& p : all_patterns()) {
    const std::int64_t layers =
        p.pattern.integration == Integration::interleaved ? static_cast<std::int64_t>(p.pattern.parts.size()) : 1;
    for (std::int64_t layer = 0; layer < layers; ++layer)
      for (const std::int64_t n : {2, 45, 333}) {
        const auto [key_size, value_size] = sizes[++turn % 5];
        const std::int64_t key_heads = turn % 2 == 0 ? p.heads : 1;
        const AttentionShape shape{2, n, p.heads, key_size, value_size, 1, key_heads};
        const std::int32_t begin = turn % 3 == 0 && n > 2 ? 20 : 0;
        turn % 4 == 0 ? expect_right<__half>(p, layer, shape, begin)
                      : expect_right<__nv_bfloat16>(p, layer, shape, begin);
        if (::testing::Test::HasFailure()) return;
      }
  }
}

// Groups of every size, of which 32 are two blocks of 16 rows and 6 one, over more tiles than a block has.
TEST(EmulatedOneQuery, IsAsGoodAsNaiveForEveryGroup) {
  const NamedPattern dense{"dense", pattern_of(Integration::merged, {PartKind::dense}, 0), 0};
  for (const auto& [heads, key_heads] : {std::pair{32, 1}, {12, 2}, {8, 8}, {7, 1}})
    expect_right<__nv_bfloat16>(dense, 0, {1, 1500, heads, 64, 64, 1, key_heads}, 0);
}

}  // namespace
}  // namespace longstride::kernels::one_query_test
