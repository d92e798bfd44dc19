#include "framework/layers/residual_stream.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <tuple>

#include "tests/support/finite_differences.h"
#include "tests/support/test_tensors.h"

namespace longstride::residual_stream_test {
namespace {

using testing::OwnedTensor;

constexpr std::int64_t batch = 2, seq = 3, width = 4;
constexpr int branches = 3;

// out = 2 normed + bias. Logs its number, after a prime when it takes over the results of an earlier run, and before a
// minus when it has no output to compute and a plus when it adds it. Branch k has k results to keep, which say whose
// they are.
class Doubling : public Branch {
 public:
  Doubling(ParameterSet& parameters, int number, std::string& log, bool adds)
      : bias_(parameters.add("bias." + std::to_string(number), {width}, {})), number_(number), log_(log), adds_(adds) {}
  bool adds_residual() const override { return adds_; }
  void forward(Context&, const Tensor& normed, const BranchOutput& out, Tape* tape) const override {
    log_ += std::to_string(number_) + (out.given() ? "" : "-");
    if (tape != nullptr) tape->push(normed);
    if (!out.given()) return;
    const auto [to, residual] = out.place();
    if (residual.given()) log_ += '+';
    for (std::int64_t i = 0; i < normed.count(); ++i) {
      const double y = 2 * normed.as<double>()[i] + bias_.master.as<double>()[i % width];
      to.as<double>()[i] = residual.given() ? residual.as<double>()[i] + y : y;
    }
  }
  void backward(Context&, const Tensor& dout, const Tensor& dnormed, Tape& tape) const override {
    tape.pop();
    for (std::int64_t i = 0; i < dout.count(); ++i) dnormed.as<double>()[i] = 2 * dout.as<double>()[i];
  }
  int kept_results() const override { return number_; }
  void forward_keeping(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape& tape) const override {
    for (int i = 0; i < number_; ++i) {
      const Tensor result = tape.tensor({1}, Dtype::f64);
      *result.as<double>() = 10 * number_ + i;
      tape.push(result);
    }
    forward(ctx, normed, out, nullptr);
  }
  void forward_again(Context& ctx, const Tensor& normed, const BranchOutput& out, const KeptResults& kept,
                     Tape& tape) const override {
    ASSERT_EQ(static_cast<int>(kept.size()), number_);
    for (int i = 0; i < number_; ++i) EXPECT_EQ(*kept[static_cast<std::size_t>(i)].as<double>(), 10 * number_ + i);
    log_ += '\'';
    forward(ctx, normed, out, &tape);
  }
  Tensor output_bias_gradient() const override { return bias_.gradient; }
  const Parameter& gradients_final_from() const override { return bias_; }

 private:
  Parameter& bias_;
  int number_;
  std::string& log_;
  bool adds_;
};

class Watcher : public GradientWatcher {
 public:
  void complete_from(const Parameter& first) override { order += first.name + " "; }
  std::string order;
};

class Stream {
 public:
  // dropout: that of the second branch alone; the others' gradients are those of the stream.
  // adds: whether branches add their outputs to the stream.
  explicit Stream(RecomputedBranches recomputed, float dropout = 0, bool post_norm = false, bool adds = false)
      : stream_(steps(dropout, adds), post_norm ? nullptr : std::make_shared<LayerNorm>(parameters_, "last", width),
                recomputed),
        values_(testing::normals(laid_out(), Dtype::f64, 2)),
        gradients_(laid_out(), Dtype::f64) {
    parameters_.bind(values_, gradients_);
    ctx.compute = ctx.exact = Dtype::f64;
    if (dropout > 0) ctx.step = &step_;
  }

  // Runs `walk` on a copy of the input.
  template <class Walk>
  std::vector<double> normed(Walk&& walk) {
    OwnedTensor h(input), out({batch, seq, width}, Dtype::f64);
    walk(*h, *out);
    return std::vector<double>(out->as<double>(), out->as<double>() + out->count());
  }
  std::vector<double> evaluated() {
    return normed([&](const Tensor& h, const Tensor& out) { stream_.forward(ctx, h, out, nullptr); });
  }
  // Also writes the gradient of the result's sum of squares to `dh`.
  std::vector<double> trained(const Tensor& dh) {
    return normed([&](const Tensor& h, const Tensor& out) {
      Tape tape(*ctx.arena);
      stream_.forward(ctx, h, out, &tape);
      OwnedTensor d({batch, seq, width}, Dtype::f64);
      for (std::int64_t i = 0; i < out.count(); ++i) d->as<double>()[i] = 2 * out.as<double>()[i];
      stream_.backward(ctx, *d, dh, tape);
      EXPECT_TRUE(tape.empty());
    });
  }

  std::string log;
  testing::TestContext ctx;
  OwnedTensor input = testing::normals({batch, seq, width}, Dtype::f64, 1);
  ResidualStream& operator*() { return stream_; }
  const Tensor& values() const { return *values_; }  // values of all parameters
  const Tensor& gradients() const { return *gradients_; }
  const double* value(const std::string& name) const {
    for (const Parameter& p : parameters_.all())
      if (p.name == name) return p.master.as<const double>();
    throw std::invalid_argument(name);
  }

 private:
  std::vector<ResidualStep> steps(float dropout, bool adds) {
    std::vector<ResidualStep> out;
    for (int k = 0; k < branches; ++k)
      out.push_back({std::make_shared<LayerNorm>(parameters_, "norm." + std::to_string(k), width),
                     std::make_shared<Doubling>(parameters_, k, log, adds),
                     {k == 1 ? dropout : 0, 0}});
    return out;
  }

  Shape laid_out() {
    parameters_.lay_out();
    return {parameters_.flat_size()};
  }

  std::int64_t step_ = 1;
  ParameterSet parameters_;
  ResidualStream stream_;
  OwnedTensor values_, gradients_;
};

std::vector<RecomputedBranches> policies() {
  std::vector<RecomputedBranches> all;
  for (int recomputed = 0; recomputed <= branches; ++recomputed) all.push_back({recomputed, false});
  for (int recomputed = 1; recomputed <= branches; ++recomputed) all.push_back({recomputed, true});
  return all;
}

std::string name_of(const RecomputedBranches& policy) {
  return std::to_string(policy.branches) + (policy.keep_results ? " keeping results" : "");
}

// Two parameters: post-norm, and branches that add their outputs.
class ResidualStreamTest : public ::testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  static Stream stream_of(RecomputedBranches recomputed, float dropout = 0) {
    return Stream(recomputed, dropout, std::get<0>(GetParam()), std::get<1>(GetParam()));
  }
};
INSTANTIATE_TEST_SUITE_P(On, ResidualStreamTest, ::testing::Combine(::testing::Bool(), ::testing::Bool()),
                         [](const auto& of) {
                           return std::string(std::get<0>(of.param) ? "post_norm" : "pre_norm") +
                                  (std::get<1>(of.param) ? "_added_by_branches" : "");
                         });

TEST_P(ResidualStreamTest, EveryWalkGivesTheSameBits) {
  Stream stream = stream_of({});
  const std::vector<double> expected = stream.evaluated();
  OwnedTensor dh({batch, seq, width}, Dtype::f64);
  for (const RecomputedBranches& policy : policies())
    EXPECT_EQ(stream_of(policy).trained(*dh), expected) << name_of(policy);
  std::string seen;
  const auto note = [&](int k, const Tensor&) { seen += std::to_string(k); };
  EXPECT_EQ(stream.normed([&](const Tensor& h, const Tensor& out) { (*stream).observe(stream.ctx, h, out, note); }),
            expected);
  EXPECT_EQ(seen, "012");
  // The branches treat each position independently, so decoding takes the (batch, seq) rows as sequences of length one.
  EXPECT_EQ(stream.normed([&](const Tensor& h, const Tensor& out) {
    Scratch memory(stream.ctx);
    const Shape rows = {batch * seq, 1, width};
    const auto caches = (*stream).make_caches(stream.ctx, memory, batch * seq, 1);
    (*stream).decode(stream.ctx, h.reshape(rows), out.reshape(rows), caches, 0);
  }),
            expected);
}

TEST_P(ResidualStreamTest, GradientsEqualFiniteDifferencesForEveryPolicy) {
  for (const RecomputedBranches& policy : policies())
    for (const float dropout : {0.0f, 0.4f}) {
      SCOPED_TRACE(name_of(policy));
      Stream stream = stream_of(policy, dropout);
      OwnedTensor dh({batch, seq, width}, Dtype::f64);
      stream.trained(*dh);
      const auto loss = [&] {
        double sum = 0;
        for (const double x : stream.evaluated()) sum += x * x;
        return sum;
      };
      testing::expect_gradient("dh", *stream.input, *dh, loss);
      testing::expect_gradient("bias", stream.values(), stream.gradients(), loss);
    }
}

TEST_P(ResidualStreamTest, RecomputeRunsGroupsAgainWithoutTheirLastOutput) {
  OwnedTensor dh({batch, seq, width}, Dtype::f64);
  for (const auto& [recomputed, order] :
       {std::pair{0, "012"}, std::pair{1, "0122-1-0-"}, std::pair{2, "0122-01-"}, std::pair{3, "012012-"}}) {
    Stream stream = stream_of({recomputed, false});
    stream.trained(*dh);
    std::erase(stream.log, '+');
    EXPECT_EQ(stream.log, order) << recomputed;
  }
}

// A branch whose output is dropped in part, here the second, leaves the addition to the pass that drops it. So do all
// in generation, whose passes are short.
TEST_P(ResidualStreamTest, BranchesAddWhatIsNotDropped) {
  const auto& [post_norm, adds] = GetParam();
  OwnedTensor dh({batch, seq, width}, Dtype::f64);
  for (const float dropout : {0.0f, 0.4f}) {
    Stream stream = stream_of({}, dropout);
    stream.trained(*dh);
    EXPECT_EQ(stream.log, !adds ? "012" : dropout > 0 ? "0+12+" : "0+1+2+");
  }
}

TEST_P(ResidualStreamTest, AddedByBranchesOrNotTheBitsAreTheSame) {
  const auto& [post_norm, adds] = GetParam();
  OwnedTensor dh({batch, seq, width}, Dtype::f64), expected(dh);
  for (const RecomputedBranches& policy : policies()) {
    Stream reference(policy, 0.4f, post_norm);
    EXPECT_EQ(stream_of(policy, 0.4f).trained(*dh), reference.trained(*expected));
    EXPECT_TRUE(dh == expected);
  }
}

// x <- norm(x + branch(x)), written out; the branch is 2 x + bias.
TEST(ResidualStream, PostNormNormalisesTheStreamBehindEveryBranch) {
  Stream stream({}, 0, true);
  const std::vector<double> found = stream.evaluated();
  for (std::int64_t row = 0; row < batch * seq; ++row) {
    double x[width];
    std::copy_n(stream.input->as<double>() + row * width, width, x);
    for (int k = 0; k < branches; ++k) {
      const std::string number = std::to_string(k);
      const double *gain = stream.value("norm." + number + ".weight"),
                   *shift = stream.value("norm." + number + ".bias");
      const double* bias = stream.value("bias." + number);
      double mean = 0, square = 0;
      for (int j = 0; j < width; ++j) mean += (x[j] = 3 * x[j] + bias[j]) / width;
      for (int j = 0; j < width; ++j) square += (x[j] - mean) * (x[j] - mean) / width;
      for (int j = 0; j < width; ++j)
        x[j] = (x[j] - mean) / std::sqrt(square + LayerNorm::epsilon) * gain[j] + shift[j];
    }
    for (int j = 0; j < width; ++j) EXPECT_NEAR(found[static_cast<std::size_t>(row * width + j)], x[j], 1e-12);
  }
}

TEST(ResidualStream, EveryBranchTakesOverTheResultsThatItKept) {
  OwnedTensor dh({batch, seq, width}, Dtype::f64);
  for (const auto& [recomputed, order] :
       {std::pair{1, "012'2-'1-'0-"}, std::pair{2, "012'2-'0'1-"}, std::pair{3, "012'0'1'2-"}}) {
    Stream stream({recomputed, true});
    stream.trained(*dh);
    EXPECT_EQ(stream.log, order) << recomputed;
  }
}

TEST(ResidualStream, CompletesGradientsFromTheLastBranchToTheFirst) {
  Stream stream({2, false});
  Watcher watcher;
  stream.ctx.watcher = &watcher;
  OwnedTensor dh({batch, seq, width}, Dtype::f64);
  stream.trained(*dh);
  EXPECT_EQ(watcher.order, "bias.2 bias.1 bias.0 ");
}

}  // namespace
}  // namespace longstride::residual_stream_test
