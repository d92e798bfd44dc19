// A long sequence, for which an n x n matrix would need 16 GiB per head.
#include <gtest/gtest.h>

#include "tests/kernels/attention_patterns.h"
#include "tests/kernels/attention_reference.h"
#include "tests/support/peak_memory.h"

namespace longstride::kernels {
namespace {

using enum Integration;
using enum PartKind;

TEST(AttentionLong, StridedOver65536PositionsInLinearMemory) {
  const PatternConfig p = pattern_of(merged, {local, column}, 256);
  const AttentionShape s{1, 65536, 2, 16, 16};
  AttentionData<float> x(s);
  const std::size_t before = peak_bytes();
  const auto plan = make_plan(p, 0, s.heads, s.n);
  run_forward(*plan, s, x);
  run_backward(*plan, s, x);
  // The numbers that the backward pass keeps per row, the plan, and the threads' tiles.
  EXPECT_LT(peak_bytes() - before, std::size_t{16} << 20);

  // Rows of o, lse and dq from the definition; they need one row of the mask each.
  const auto at = [&](const std::vector<float>& all, std::int64_t i, std::int64_t h) {
    return all.data() + (i * s.heads + h) * 16;
  };
  for (std::int64_t i : {std::int64_t{0}, std::int64_t{255}, std::int64_t{256}, std::int64_t{40000}, s.n - 1}) {
    const std::int64_t h = i % s.heads;
    std::vector<double> score;
    std::vector<std::int64_t> keys;
    double sum = 0, delta = 0, o[16] = {}, dq[16] = {};
    for (std::int64_t j = 0; j <= i; ++j) {
      if (!allowed(p, 0, s.heads, h, s.n, i, j)) continue;
      double dot = 0;
      for (int d = 0; d < 16; ++d) dot += static_cast<double>(at(x.q, i, h)[d]) * at(x.k, j, h)[d];
      keys.push_back(j);
      score.push_back(std::exp(s.scale() * dot));
      sum += score.back();
    }
    for (std::size_t t = 0; t < keys.size(); ++t)
      for (int d = 0; d < 16; ++d) o[d] += score[t] / sum * at(x.v, keys[t], h)[d];
    for (int d = 0; d < 16; ++d) {
      EXPECT_NEAR(at(x.o, i, h)[d], o[d], 1e-5) << "i " << i;
      delta += at(x.dout, i, h)[d] * o[d];
    }
    EXPECT_NEAR(x.lse[static_cast<std::size_t>(h * s.n + i)], std::log(sum), 1e-5);
    for (std::size_t t = 0; t < keys.size(); ++t) {
      double dp = 0;
      for (int d = 0; d < 16; ++d) dp += static_cast<double>(at(x.dout, i, h)[d]) * at(x.v, keys[t], h)[d];
      for (int d = 0; d < 16; ++d) dq[d] += score[t] / sum * (dp - delta) * s.scale() * at(x.k, keys[t], h)[d];
    }
    for (int d = 0; d < 16; ++d) EXPECT_NEAR(at(x.dq, i, h)[d], dq[d], 1e-5) << "i " << i;
  }
  // The same for the keys, which need one column of the mask each.
  for (std::int64_t j : {std::int64_t{0}, std::int64_t{30000}, s.n - 1}) {
    double dv[16] = {};
    for (std::int64_t i = j; i < s.n; ++i) {
      if (!allowed(p, 0, s.heads, 0, s.n, i, j)) continue;
      double dot = 0;
      for (int d = 0; d < 16; ++d) dot += static_cast<double>(at(x.q, i, 0)[d]) * at(x.k, j, 0)[d];
      const double probability = std::exp(s.scale() * dot - static_cast<double>(x.lse[static_cast<std::size_t>(i)]));
      for (int d = 0; d < 16; ++d) dv[d] += probability * at(x.dout, i, 0)[d];
    }
    for (int d = 0; d < 16; ++d) EXPECT_NEAR(at(x.dv, j, 0)[d], dv[d], 1e-5) << "j " << j;
  }
}

}  // namespace
}  // namespace longstride::kernels
