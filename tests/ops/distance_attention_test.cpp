#include "kernels/distance_attention/distance_attention.h"

#include <omp.h>

#include <type_traits>

#include "tests/ops/dense_distance_attention.h"
#include "tests/ops/distance_cases.h"
#include "tests/ops/op_test.h"
#include "tests/support/finite_differences.h"

namespace longstride::testing {
namespace {

using kernels::DistanceAttentionArgs;
using kernels::DistanceAttentionBackwardArgs;
using kernels::DistanceScores;

class DistanceAttentionTest : public OpTest {
 protected:
  void SetUp() override {
    OpTest::SetUp();
    if (IsSkipped()) return;
    ctx.seed = dropout_seed;
    step_.emplace_back(with_values({1}, Dtype::i64, {dropout_step}));
  }
  const std::int64_t* step() const { return step_[0]->as<const std::int64_t>(); }

 private:
  std::vector<Operand> step_;
};

// The tensors of a case; absent ones have one element that no call names.
struct DistanceOperands {
  DistanceCase c;
  Operand q, k, v, dout, table, content_bias, position_bias, span, first_key, begin, end;
  Operand o, lse, dq, dk, dv, dtable, dcontent_bias, dposition_bias, dspan;

  DistanceScores scores(const std::int64_t* step) const {
    DistanceScores s{.q = q, .k = k};
    if (c.distances > 0) s.table = table;
    if (c.biases) s.content_bias = content_bias;
    if (c.biases && c.distances > 0) s.position_bias = position_bias;
    if (!c.span.empty()) s.span = span;
    s.longest_span = c.longest_span;
    s.ramp = c.ramp;
    if (!c.first_key.empty()) s.first_key = first_key;
    if (c.document > 0) s.bounds = {begin, end};
    s.window = c.window;
    s.self = c.self;
    s.dilation = c.dilation;
    s.scale = c.scale();
    s.dropout = {c.p, dropout_seed, dropout_layer, step, dropout_first_sequence};
    return s;
  }
  DistanceAttentionArgs forward(const std::int64_t* step) const { return {scores(step), v, o, lse}; }
  DistanceAttentionBackwardArgs backward(const std::int64_t* step) const {
    DistanceAttentionBackwardArgs args{scores(step), v, o, lse, dout, dq, dk, dv};
    if (c.distances > 0) args.dtable = dtable;
    args.dcontent_bias = dcontent_bias;
    if (c.distances > 0) args.dposition_bias = dposition_bias;
    if (!c.span.empty()) args.dspan = dspan;
    if (c.saved_bytes > 0) args.saved_bytes = c.saved_bytes;
    return args;
  }
  DistanceValues values() const {
    return {q.values(),
            k.values(),
            v.values(),
            dout.values(),
            c.distances > 0 ? table.values() : std::vector<double>(),
            content_bias.values(),
            position_bias.values()};
  }
};

// The dense computation of a case, the exact one and the naive one. It takes long, so all tensors are compared with
// one.
struct DenseResults {
  DistanceResult<double> in_double;
  DistanceResult<float> in_float;

  template <class T>
  const DistanceResult<T>& in() const {
    if constexpr (std::is_same_v<T, double>)
      return in_double;
    else
      return in_float;
  }
};

class DistanceAttentionOpTest : public DistanceAttentionTest {
 protected:
  // `draw`: which of many random inputs.
  DistanceOperands operands(const DistanceCase& c, unsigned draw = 0) {
    const Shape queries{c.batch, c.n_q, c.heads, c.size}, keys{c.batch, c.n_k, c.heads, c.size};
    const Shape values{c.batch, c.n_k, c.heads, c.value_size}, outputs{c.batch, c.n_q, c.heads, c.value_size};
    const Shape table{std::max<std::int64_t>(c.distances, 1), c.tables, c.size}, bias{c.heads, c.size},
        rows{c.batch, c.heads, c.n_q};
    const auto or_zero = [](std::vector<double> x, std::int64_t count) {
      return x.empty() ? std::vector<double>(static_cast<std::size_t>(count)) : x;
    };
    return {c,
            normals(queries, 1 + 100 * draw),
            normals(keys, 2 + 100 * draw),
            normals(values, 3 + 100 * draw),
            normals(outputs, 4 + 100 * draw),
            normals(table, 5 + 100 * draw),
            normals(bias, exact(), 6 + 100 * draw, 0.5),
            normals(bias, exact(), 7 + 100 * draw, 0.5),
            with_values({c.heads}, exact(), or_zero(c.span, c.heads)),
            with_values({c.batch}, Dtype::i32, or_zero(c.first_key, c.batch)),
            with_values(rows, Dtype::i32, or_zero(bounds_of(c, false), rows.count())),
            with_values(rows, Dtype::i32, or_zero(bounds_of(c, true), rows.count())),
            result(outputs),
            result({c.batch, c.heads, c.n_q}, exact()),
            result(queries),
            result(keys),
            result(values),
            filled(table, exact(), 0.25),
            filled(bias, exact(), -0.5),
            filled(bias, exact(), 0.75),
            filled({c.heads}, exact(), 2)};
  }

  DenseResults dense_results(const DistanceOperands& x) {
    const DistanceValues in = x.values();
    return {dense_distance_attention<double>(x.c, in, compute()), dense_distance_attention<float>(x.c, in, compute())};
  }

  // The gradients of parameters are added to what `found` held. dP and delta may cancel to what rounding leaves.
  template <class Member>
  void expect_gradient_of(const char* name, const Operand& found, const DenseResults& dense, Member member,
                          double slack = 0) {
    const auto plain = [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> all = member(dense.in<T>());
      for (T& e : all) e += static_cast<T>(std::isnan(found.at(0)) ? 0 : found.at(0));
      return all;
    };
    expect_as_exact_as_plain(name, found, plain, 32 * half_step_of(exact()) + slack);
  }

  // Twice the largest error of a naive dspan over further draws of a case. Few rows, those whose visible keys lie on
  // the ramp, make most of a span's rounding error, so that of one draw may be ten times that of another.
  double span_error(const DistanceCase& c) {
    double largest = 0;
    if (exact() == compute()) return largest;
    for (unsigned draw = 1; draw <= 4; ++draw) {
      const DenseResults dense = dense_results(operands(c, draw));
      for (std::size_t h = 0; h < dense.in_double.dspan.size(); ++h)
        largest = std::max(largest, std::abs(dense.in_double.dspan[h] - static_cast<double>(dense.in_float.dspan[h])));
    }
    return 2 * largest;
  }

  // -infinity, of rows without a key, becomes 0.
  static std::vector<double> finite(std::vector<double> x) {
    for (double& e : x)
      if (e == -std::numeric_limits<double>::infinity()) e = 0;
    return x;
  }
};
LONGSTRIDE_OP_TESTS(DistanceAttentionOpTest);

#define RESULT(member) [](const auto& r) { return r.member; }

TEST_P(DistanceAttentionOpTest, IsTheDenseComputation) {
  for (const DistanceCase& c : distance_cases) {
    SCOPED_TRACE(c.name);
    DistanceOperands x = operands(c);
    run(x.forward(step()), {&x.o, &x.lse});
    const DenseResults right = dense_results(x);
    expect_gradient_of("o", x.o, right, RESULT(o));
    const std::vector<double> lse = x.lse.found();
    expect_as_exact_as_plain("lse", exact(), finite(lse), [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> all = right.in<T>().lse;
      for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(std::isinf(all[i]), std::isinf(lse[i])) << i;
        if (std::isinf(all[i])) all[i] = 0;
      }
      return all;
    });
  }
}

TEST_P(DistanceAttentionOpTest, GradientsAreThoseOfTheDenseComputation) {
  for (const DistanceCase& c : distance_cases) {
    SCOPED_TRACE(c.name);
    DistanceOperands x = operands(c);
    ops::run(ctx, x.forward(step()));
    run(x.backward(step()), {&x.dq, &x.dk, &x.dv, &x.dtable, &x.dcontent_bias, &x.dposition_bias, &x.dspan});
    const DenseResults right = dense_results(x);
    expect_gradient_of("dq", x.dq, right, RESULT(dq));
    expect_gradient_of("dk", x.dk, right, RESULT(dk));
    expect_gradient_of("dv", x.dv, right, RESULT(dv));
    expect_gradient_of("dcontent_bias", x.dcontent_bias, right, RESULT(dcontent_bias));
    if (c.distances > 0) expect_gradient_of("dtable", x.dtable, right, RESULT(dtable));
    if (c.distances > 0) expect_gradient_of("dposition_bias", x.dposition_bias, right, RESULT(dposition_bias));
    if (!c.span.empty()) expect_gradient_of("dspan", x.dspan, right, RESULT(dspan), span_error(c));
  }
}

TEST_P(DistanceAttentionOpTest, HiddenKeysNeitherMatterNorGetAGradient) {
  const DistanceCase c{
      .name = "", .batch = 1, .n_q = 40, .n_k = 100, .distances = 100, .biases = true, .first_key = {70}};
  DistanceOperands x = operands(c), y = operands(c);
  y.k = normals({1, 100, c.heads, c.size}, 2);
  std::vector<double> other = y.k.values();
  for (std::size_t i = 0; i < 70 * static_cast<std::size_t>(c.heads * c.size); ++i) other[i] = 1e4;
  y.k = with_values({1, 100, c.heads, c.size}, compute(), other);
  for (DistanceOperands* one : {&x, &y}) {
    ops::run(ctx, one->forward(step()));
    ops::run(ctx, one->backward(step()));
  }
  EXPECT_EQ(x.o.raw(), y.o.raw());
  EXPECT_EQ(x.dq.raw(), y.dq.raw());
  const std::vector<double> dk = x.dk.found();
  for (std::size_t i = 0; i < 70 * static_cast<std::size_t>(c.heads * c.size); ++i) ASSERT_EQ(dk[i], 0) << i;
}

// The only key of a query is at distance 1. At the very end of a ramp it is hidden; where it has a weight, its
// probability is 1 and the span has no gradient but a rounding error, divided by the weight. In 16 bits that of the
// weighted probability and that of the output are part of it, each at most two half steps of what it rounds.
TEST_P(DistanceAttentionOpTest, AKeyAtTheVeryEndOfARampIsHidden) {
  for (const double weight : {-0.25, 0.0, 1e-12, 0.9 / 1024, 1.1 / 1024, 0.5}) {
    DistanceCase c{.name = "", .batch = 1, .n_q = 1, .n_k = 2, .distances = 2, .longest_span = 16, .ramp = 4};
    c.self = false;
    c.span = std::vector<double>(2, (4 * weight + 1 - 4) / 16);
    DistanceOperands x = operands(c);
    x.dspan = filled({2}, exact(), 0);
    ops::run(ctx, x.forward(step()));
    ops::run(ctx, x.backward(step()));
    const bool hidden = weight * 1024 < 1;
    for (const double lse : x.lse.found()) EXPECT_EQ(std::isinf(lse), hidden) << weight;
    const std::vector<double> o = x.o.found(), dspan = x.dspan.found();
    for (const double value : o) EXPECT_TRUE(!hidden || value == 0) << weight;
    for (std::size_t h = 0; h < 2; ++h) {
      double magnitude = 0;
      for (std::size_t d = 0; d < 8; ++d) magnitude += std::abs(x.dout.values()[8 * h + d] * x.v.values()[8 * h + d]);
      const double stored = compute() == exact() ? 0 : 2 * 2 * half_step_of(compute());
      const double rounding = 2 * (8 * 2 * half_step_of(exact()) + stored) * magnitude;
      EXPECT_LE(std::abs(dspan[h]), hidden ? 0 : rounding * c.longest_span / c.ramp / weight) << weight;
    }
  }
}

// With the dense computation as the judge: rows are unread exactly if no pair of theirs has a weight.
TEST_P(DistanceAttentionOpTest, CountsTheKeysThatNoQueryReads) {
  if (device() == Device::cuda) return;  // spans are in device memory
  std::vector<DistanceCase> some = distance_cases;
  some.push_back({.name = "short spans", .n_q = 20, .n_k = 100, .span = {0.3, 0.102}, .longest_span = 100, .ramp = 8});
  some.push_back({.name = "spans that dilate",
                  .n_q = 20,
                  .n_k = 100,
                  .span = {0.1, 0.1},
                  .longest_span = 100,
                  .ramp = 8,
                  .self = false,
                  .dilation = {3, 1}});
  some.push_back({.name = "windows", .n_q = 20, .n_k = 100, .window = 17, .dilation = {1, 3}});
  some.push_back({.name = "nothing", .n_q = 20, .n_k = 100, .span = {-1, -1}, .longest_span = 100, .ramp = 8});
  for (DistanceCase c : some) {
    SCOPED_TRACE(c.name);
    c.size = c.value_size = 8;  // the keys that are read do not depend on them
    DistanceOperands x = operands(c);
    const DistanceValues in = x.values();
    DistanceCase all = c;
    all.first_key = {};
    all.document = 0;
    const auto dv = dense_distance_attention<double>(all, in, compute()).dv;
    const std::size_t row = static_cast<std::size_t>(c.heads * c.value_size);
    std::int64_t unread = 0;
    while (unread < c.n_k - c.n_q &&
           std::all_of(dv.begin() + static_cast<std::ptrdiff_t>(row) * unread,
                       dv.begin() + static_cast<std::ptrdiff_t>(row) * (unread + 1), [](double e) { return e == 0; }))
      ++unread;
    EXPECT_EQ(x.scores(step()).unread_keys(), unread);
  }
}

TEST_P(DistanceAttentionOpTest, TensorsMayBeSlicesOfOne) {
  const DistanceCase c{.name = "", .batch = 2, .n_q = 37, .n_k = 37, .size = 16, .value_size = 16, .distances = 37};
  DistanceOperands x = operands(c);
  ops::run(ctx, x.forward(step()));
  std::vector<double> packed;
  const std::vector<double>* from[] = {&x.q.values(), &x.k.values(), &x.v.values()};
  const std::size_t width = static_cast<std::size_t>(c.heads * c.size);
  for (std::size_t r = 0; r < static_cast<std::size_t>(c.batch * c.n_q); ++r)
    for (const auto* part : from)
      packed.insert(packed.end(), part->begin() + static_cast<std::ptrdiff_t>(r * width),
                    part->begin() + static_cast<std::ptrdiff_t>((r + 1) * width));
  Operand all = with_values({c.batch, c.n_q, std::ssize(packed) / (c.batch * c.n_q)}, compute(), packed);
  const auto slice = [&](std::int64_t which) {
    const std::int64_t w = c.heads * c.size;
    return static_cast<const Tensor&>(all).slice(2, which * w, (which + 1) * w).split_last(c.heads, c.size);
  };
  Operand o = result({c.batch, c.n_q, c.heads, c.size});
  DistanceAttentionArgs args = x.forward(step());
  args.scores.q = slice(0);
  args.scores.k = slice(1);
  args.v = slice(2);
  args.o = o;
  ops::run(ctx, args);
  EXPECT_EQ(o.raw(), x.o.raw());
}

TEST_P(DistanceAttentionOpTest, RefusesWhatDoesNotFit) {
  const DistanceCase c{
      .name = "", .n_q = 4, .n_k = 6, .distances = 6, .biases = true, .span = {1, 1}, .longest_span = 4, .ramp = 2};
  const DistanceOperands x = operands(c);
  const auto refuses = [&](auto&& change) {
    DistanceAttentionArgs args = x.forward(step());
    change(args);
    EXPECT_THROW(args.check(device()), InternalError);
  };
  EXPECT_NO_THROW(x.forward(step()).check(device()));
  EXPECT_NO_THROW(x.backward(step()).check(device()));
  refuses([&](auto& a) { std::swap(a.scores.q, a.scores.k); });
  refuses([&](auto& a) { a.scores.table = Tensor(nullptr, compute(), {6, 3, 8}); });
  refuses([&](auto& a) { a.scores.table = {}; });
  refuses([&](auto& a) { a.scores.ramp = 0; });
  refuses([&](auto& a) { a.scores.dilation = {1}; });
  refuses([&](auto& a) { a.scores.dilation = {1, 0}; });
  refuses([&](auto& a) { a.scores.window = -1; });
  refuses([&](auto& a) { a.scores.dropout.p = 1; });
  refuses([&](auto& a) { a.scores.first_key = a.scores.span; });
  refuses([&](auto& a) { a.scores.bounds = {a.lse, a.lse}; });
  refuses([&](auto& a) { a.scores.bounds.end = x.end; });
  refuses([&](auto& a) { a.o = a.v; });
  refuses([&](auto& a) { a.lse = a.scores.span; });
}

class DistanceAttentionGradient : public DistanceAttentionOpTest {};
INSTANTIATE_TEST_SUITE_P(On, DistanceAttentionGradient, ::testing::Values(Precision{Device::cpu, Dtype::f64}),
                         [](const auto&) { return "cpu_f64"; });

// Spans such that keys lie on both sides of the ramp's ends, a hundredth of a position away from them.
TEST_P(DistanceAttentionGradient, AgreesWithFiniteDifferences) {
  std::vector<DistanceCase> some;
  some.push_back({.name = "bias and table",
                  .n_q = 5,
                  .n_k = 9,
                  .size = 4,
                  .value_size = 3,
                  .distances = 6,
                  .tables = 2,
                  .biases = true,
                  .first_key = {0, 6},
                  .p = 0.25f});
  some.push_back({.name = "span",
                  .n_q = 7,
                  .n_k = 14,
                  .size = 4,
                  .value_size = 3,
                  .distances = 14,
                  .span = {0.5011, 0.2989},
                  .longest_span = 10,
                  .ramp = 3,
                  .self = false,
                  .dilation = {1, 2}});
  for (const DistanceCase& c : some) {
    SCOPED_TRACE(c.name);
    DistanceOperands x = operands(c);
    for (Operand* g : {&x.dtable, &x.dcontent_bias, &x.dposition_bias, &x.dspan})
      *g = filled(static_cast<const Tensor&>(*g).shape(), exact(), 0);
    const auto loss = [&] {
      ops::run(ctx, x.forward(step()));
      const std::vector<double> o = x.o.found();
      double total = 0;
      for (std::size_t i = 0; i < o.size(); ++i) total += o[i] * x.dout.values()[i];
      return total;
    };
    loss();
    ops::run(ctx, x.backward(step()));
    expect_gradient("q", x.q, x.dq, loss);
    expect_gradient("k", x.k, x.dk, loss);
    expect_gradient("v", x.v, x.dv, loss);
    expect_gradient("table", x.table, x.dtable, loss);
    if (c.biases) expect_gradient("content_bias", x.content_bias, x.dcontent_bias, loss);
    if (c.biases) expect_gradient("position_bias", x.position_bias, x.dposition_bias, loss);
    if (!c.span.empty()) expect_gradient("span", x.span, x.dspan, loss);
  }
}

TEST_P(DistanceAttentionGradient, DoesNotDependOnTheNumberOfThreads) {
  const int threads = omp_get_max_threads();
  std::vector<std::vector<std::byte>> bits;
  for (const int n : {1, 3}) {
    omp_set_num_threads(n);
    DistanceOperands x = operands(distance_cases[0]);
    ops::run(ctx, x.forward(step()));
    ops::run(ctx, x.backward(step()));
    for (const Operand* o : {&x.o, &x.dq, &x.dk, &x.dv, &x.dtable, &x.dcontent_bias}) bits.push_back(o->raw());
  }
  omp_set_num_threads(threads);
  for (std::size_t i = 0; i < bits.size() / 2; ++i) EXPECT_EQ(bits[i], bits[i + bits.size() / 2]) << i;
}

}  // namespace
}  // namespace longstride::testing
