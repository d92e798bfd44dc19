#include "framework/mixers/attention/mixer.h"

#include <gtest/gtest.h>

#include "framework/ops/run.h"
#include "kernels/column_sum/column_sum.h"
#include "tests/kernels/attention_patterns.h"
#include "tests/support/test_tensors.h"

namespace longstride::attention_branch_test {
namespace {

using kernels::Integration;
using kernels::PartKind;
using kernels::PatternConfig;
using testing::OwnedTensor;

constexpr std::int64_t batch = 3, seq = 22, width = 12, heads = 2, key_size = 4, value_size = 6;
constexpr std::int64_t keys = heads * key_size, all = 2 * keys + heads * value_size;

struct Case {
  std::string name;
  PatternConfig pattern;
  kernels::QueryKeyTransform transform = {};
  std::int64_t layer = 0;
  std::int64_t summed = keys;  // columns of dqkv that are read for the bias
  bool sink = false;
  std::int64_t key_heads = heads;

  std::int64_t keys_end() const { return keys + key_heads * key_size; }
  std::int64_t columns() const { return keys_end() + key_heads * value_size; }
};

// A rotated or normalised key has a gradient of its bias. Rows that see no key leave the sum of P's rows below 1, and a
// sink does both.
std::vector<Case> cases() {
  using enum Integration;
  using enum PartKind;
  const auto fixed = [](Integration i) { return kernels::pattern_of(i, {fixed_block, fixed_summary}, 5, {2}); };
  return {{"dense", kernels::pattern_of(merged, {dense}, 0)},
          {"strided_merged", kernels::pattern_of(merged, {local, column}, 5)},
          {"strided_multihead", kernels::pattern_of(multihead, {local, column}, 5)},
          {"fixed_merged", fixed(merged)},
          {"inclusive", kernels::with_options(fixed(multihead), false, true)},
          {"blocks", fixed(interleaved)},
          {"normalised", kernels::pattern_of(merged, {dense}, 0), {true, 0}, 0, 2 * keys},
          {"rotated", kernels::pattern_of(merged, {local, column}, 5), {false, 100}, 0, 2 * keys},
          {"summaries", fixed(interleaved), {}, 1, all - keys},
          {"fixed_multihead", fixed(multihead), {}, 0, all - keys},
          {"rotated_summaries", fixed(interleaved), {false, 100}, 1, all},
          {"sinks", kernels::pattern_of(merged, {local, column}, 5), {}, 0, all, true},
          {"shared_keys", kernels::pattern_of(merged, {dense}, 0), {}, 0, keys + value_size, false, 1},
          {"rotated_shared_keys",
           kernels::pattern_of(merged, {dense}, 0),
           {false, 100},
           0,
           keys + key_size + value_size,
           false,
           1}};
}

struct ColumnSumBytes : kernels::Meter {
  void begin(const kernels::Cost& cost) override {
    bytes += cost.work == kernels::WorkKind::column_sum ? cost.bytes : 0;
  }
  void end() override {}
  double bytes = 0;
};

class OneBranch {
 public:
  explicit OneBranch(const Case& c)
      : branch_(parameters_, "attention",
                {width, heads, key_size, value_size, c.key_heads, 1, 1, true, true, c.transform, 0, c.sink},
                std::make_shared<AttentionPlans>(c.pattern, heads, c.key_heads), c.layer),
        values_(testing::normals(laid_out(), Dtype::f64, 2)),
        gradients_(laid_out(), Dtype::f64) {
    parameters_.bind(values_, gradients_);
    ctx_.compute = ctx_.exact = Dtype::f64;
  }

  // Rows [begin, end) of the batch, forward and backward. The first input is 1, so the gradient of its weights is that
  // of the bias, summed over all rows.
  void run(std::int64_t begin, std::int64_t end) {
    OwnedTensor normed = testing::normals({batch, seq, width}, Dtype::f64, 3);
    for (std::int64_t i = 0; i < batch * seq; ++i) normed.set(i * width, 1);
    const OwnedTensor dout = testing::normals({batch, seq, width}, Dtype::f64, 4);
    const OwnedTensor out({end - begin, seq, width}, Dtype::f64), dnormed(out);
    Tape tape(*ctx_.arena);
    tape.open_frame();
    branch_.forward(ctx_, normed->slice(0, begin, end), *out, &tape);
    const Tensor d = dout->slice(0, begin, end);
    ops::run(ctx_, kernels::ColumnSumArgs{.x = d.rows(), .total = branch_.output_bias_gradient()});  // as the norm does
    ctx_.launch.meter = &read;
    branch_.backward(ctx_, d, dnormed, tape);
    ctx_.launch.meter = nullptr;
    tape.close_frame();
  }

  double bias_gradient(std::int64_t i) const { return branch_.query_key_value().bias_gradient().as<const double>()[i]; }
  double column_sum(std::int64_t i) const {
    return branch_.query_key_value().weight().gradient.as<const double>()[i * width];
  }
  ColumnSumBytes read;

 private:
  Shape laid_out() {
    parameters_.lay_out();
    return {parameters_.flat_size()};
  }

  testing::TestContext ctx_;
  ParameterSet parameters_;
  AttentionMixer branch_;
  OwnedTensor values_, gradients_;
};

class AttentionBranchTest : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Of, AttentionBranchTest, ::testing::ValuesIn(cases()),
                         [](const auto& c) { return c.param.name; });

TEST_P(AttentionBranchTest, BiasGradientsEqualTheColumnSumsOfTheGradients) {
  OneBranch branch(GetParam());
  branch.run(0, batch);
  for (std::int64_t i = 0; i < GetParam().columns(); ++i)
    EXPECT_NEAR(branch.bias_gradient(i), branch.column_sum(i), 1e-12) << i;
}

TEST_P(AttentionBranchTest, ABiasOfPlainKeysHasNoGradient) {
  OneBranch branch(GetParam());
  branch.run(0, batch);
  for (std::int64_t i = keys; i < GetParam().keys_end(); ++i) {
    if (GetParam().transform.any() || GetParam().sink)
      EXPECT_GT(std::abs(branch.bias_gradient(i)), 1e-6) << i;
    else
      EXPECT_EQ(branch.bias_gradient(i), 0) << i;
  }
}

TEST_P(AttentionBranchTest, OnlyColumnsThatNothingElseTellsAreSummed) {
  OneBranch branch(GetParam());
  branch.run(0, batch);
  EXPECT_EQ(branch.read.bytes, static_cast<double>(batch * seq * GetParam().summed) * sizeof(double));
}

TEST_P(AttentionBranchTest, BiasGradientsOfMicroBatchesAddUp) {
  OneBranch whole(GetParam()), parts(GetParam());
  whole.run(0, batch);
  for (std::int64_t row = 0; row < batch; ++row) parts.run(row, row + 1);
  for (std::int64_t i = 0; i < GetParam().columns(); ++i)
    EXPECT_NEAR(parts.bias_gradient(i), whole.bias_gradient(i), 1e-12) << i;
}

}  // namespace
}  // namespace longstride::attention_branch_test
