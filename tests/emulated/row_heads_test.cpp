// The kernels of heads of rows on emulated blocks, compared with the CPU's in fp32.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/base/philox.h"
#include "kernels/binary_loss/binary_loss.h"
#include "kernels/mean_rows/mean_rows.h"
#include "kernels/span_loss/span_loss.h"

namespace longstride::kernels {
namespace {

std::vector<float> normals(std::int64_t count, std::uint32_t stream) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < count; ++i)
    out.push_back(
        static_cast<float>(normal_of(philox(7, static_cast<std::uint64_t>(i), stream, domain_of(Purpose::test, 0)))));
  return out;
}

void expect_near(const std::vector<float>& found, const std::vector<float>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-5) << i;
}

TEST(EmulatedRowHeads, MeansAndTheirGradientsEqualTheCpus) {
  constexpr std::int64_t groups = 3, rows = 77, width = 45;
  std::vector<float> x = normals(groups * rows * width, 1), dy = normals(groups * width, 2);
  std::vector<std::int32_t> ends(groups * rows, -1);
  ends[0] = 1, ends[rows] = 77, ends[2 * rows] = 40;
  const Tensor bound = Tensor(ends.data(), Dtype::i32, {groups, rows}).slice(1, 0, 1);
  for (const Tensor& end : {bound, Tensor{}}) {
    std::vector<float> y[2], dx[2];
    for (int gpu = 0; gpu < 2; ++gpu) {
      y[gpu].resize(groups * width), dx[gpu].resize(x.size());
      const MeanRowsArgs forward{Tensor(x.data(), Dtype::f32, {groups, rows, width}), end,
                                 Tensor(y[gpu].data(), Dtype::f32, {groups, 1, width})};
      const MeanRowsBackwardArgs backward{Tensor(dy.data(), Dtype::f32, {groups, 1, width}), end,
                                          Tensor(dx[gpu].data(), Dtype::f32, {groups, rows, width})};
      gpu != 0 ? cuda::mean_rows(forward, {}) : cpu::mean_rows(forward, {});
      gpu != 0 ? cuda::mean_rows_backward(backward, {}) : cpu::mean_rows_backward(backward, {});
    }
    expect_near(y[1], y[0]);
    expect_near(dx[1], dx[0]);
  }
}

TEST(EmulatedRowHeads, BinaryLossesEqualTheCpus) {
  constexpr std::int64_t n = 300;
  std::vector<float> logits = normals(n, 3), weights = normals(n, 4);
  std::vector<std::uint16_t> targets;
  for (std::int64_t i = 0; i < n; ++i) targets.push_back(static_cast<std::uint16_t>(i % 3 == 0));
  std::vector<float> losses[2], gradient[2];
  std::vector<std::uint8_t> right[2];
  for (int gpu = 0; gpu < 2; ++gpu) {
    losses[gpu].resize(n), gradient[gpu].resize(n), right[gpu].resize(n);
    BinaryLossArgs args{.logits = Tensor(logits.data(), Dtype::f32, {n}),
                        .targets = Tensor(targets.data(), Dtype::u16, {n}),
                        .losses = Tensor(losses[gpu].data(), Dtype::f32, {n}),
                        .gradient = Tensor(gradient[gpu].data(), Dtype::f32, {n}),
                        .scale = 0.5};
    args.weights = Tensor(weights.data(), Dtype::f32, {n});
    args.right = Tensor(right[gpu].data(), Dtype::u8, {n});
    gpu != 0 ? cuda::binary_loss(args, {}) : cpu::binary_loss(args, {});
  }
  expect_near(losses[1], losses[0]);
  expect_near(gradient[1], gradient[0]);
  EXPECT_EQ(right[1], right[0]);
}

TEST(EmulatedRowHeads, LossesOfSpansEqualTheCpus) {
  constexpr std::int64_t rows = 3, n = 700;
  std::vector<float> logits = normals(rows * n * 2, 5), weights = normals(rows * 2, 6);
  std::vector<std::uint16_t> targets{0, 0, 30, 299, 5, 699};
  std::vector<std::int32_t> ends{1, 300, 700};
  std::vector<float> losses[2], gradient[2], right[2];
  for (int gpu = 0; gpu < 2; ++gpu) {
    losses[gpu].resize(rows * 2), gradient[gpu].resize(logits.size()), right[gpu].resize(rows * 2);
    SpanLossArgs args{.logits = Tensor(logits.data(), Dtype::f32, {rows, n, 2}),
                      .end = Tensor(ends.data(), Dtype::i32, {rows, 1}),
                      .targets = Tensor(targets.data(), Dtype::u16, {rows, 2}),
                      .losses = Tensor(losses[gpu].data(), Dtype::f32, {rows, 2}),
                      .gradient = Tensor(gradient[gpu].data(), Dtype::f32, {rows, n, 2}),
                      .scale = 0.5};
    args.weights = Tensor(weights.data(), Dtype::f32, {rows, 2});
    args.right = Tensor(right[gpu].data(), Dtype::f32, {rows, 2});
    gpu != 0 ? cuda::span_loss(args, {}) : cpu::span_loss(args, {});
  }
  expect_near(losses[1], losses[0]);
  expect_near(gradient[1], gradient[0]);
  EXPECT_EQ(right[1], right[0]);
}

}  // namespace
}  // namespace longstride::kernels
