#include "kernels/span_projection/span_projection.h"

#include "tests/ops/op_test.h"

namespace longstride::testing::span_projection_test {
namespace {

using kernels::DistanceScores;
using kernels::SpanProjectionArgs;
using kernels::SpanProjectionBackwardArgs;

struct Case {
  std::string name;
  std::int64_t batch = 2, n_q = 64, n_k = 256, heads = 2, key_size = 32, value_size = 32, in = 64;
  std::vector<double> span = {};  // one per head; empty: none
  double longest_span = 128, ramp = 32;
  std::int64_t window = 0;
  bool self = true;
  std::vector<std::int32_t> dilation = {};
  bool biased = false;
  bool large = false;  // for a GPU alone

  std::int64_t out() const { return heads * (key_size + value_size); }
  std::int64_t head_of(std::int64_t column) const {
    const std::int64_t keys = heads * key_size;
    return column < keys ? column / key_size : (column - keys) / value_size;
  }
};

const std::vector<Case> cases = {
    {.name = "spans within the memory",
     .n_k = 320,
     .heads = 4,
     .key_size = 64,
     .value_size = 64,
     .span = {0.1, 0.9, 0, 0.5},
     .longest_span = 256},
    {.name = "spans below 0 and beyond the memory", .heads = 4, .span = {-0.5, 0, 1, 3}},
    {.name = "every span 0", .heads = 4, .span = {0, 0, 0, 0}, .longest_span = 256, .ramp = 8},
    {.name = "nothing is read", .heads = 4, .span = {-1, -1, -1, -1}, .ramp = 8, .self = false},
    {.name = "a segment that begins within a tile", .n_q = 50, .n_k = 192, .heads = 4, .span = {0.3, 0, 0.6, 0.02}},
    {.name = "panels of several heads and parts of heads",
     .batch = 3,
     .n_k = 448,
     .heads = 5,
     .key_size = 24,
     .value_size = 104,
     .in = 320,
     .span = {0.3, 0.8, 0.05, 0.55, 0},
     .longest_span = 384},
    {.name = "heads of 64", .n_k = 448, .key_size = 64, .value_size = 64, .in = 512, .span = {0.7, 0.1}},
    {.name = "ragged",
     .n_q = 37,
     .n_k = 150,
     .heads = 3,
     .key_size = 5,
     .value_size = 7,
     .in = 19,
     .span = {.3, .01, 2}},
    {.name = "a window", .heads = 4, .span = {0.1, 0.9, 0.2, 0.5}, .window = 70, .self = false},
    {.name = "a window alone", .n_q = 20, .n_k = 100, .window = 17, .dilation = {1, 3}},
    {.name = "dilated spans", .span = {0.2, 0.2}, .dilation = {3, 1}},
    {.name = "biases", .heads = 4, .span = {0.1, 0.9, 0.9, 0.5}, .biased = true},
    {.name = "biases where every row is read", .batch = 3, .n_k = 100, .biased = true},
    {.name = "one row", .batch = 1, .n_q = 1, .n_k = 1, .heads = 1, .span = {0.5}},
    {.name = "many tiles per block",
     .batch = 40,
     .n_q = 128,
     .n_k = 1024,
     .key_size = 64,
     .value_size = 64,
     .in = 128,
     .span = {0.8, 0.01},
     .longest_span = 1024,
     .large = true},
    {.name = "few rows of many sequences",
     .batch = 40,
     .n_q = 64,
     .n_k = 256,
     .heads = 4,
     .key_size = 64,
     .value_size = 64,
     .in = 512,
     .span = {0, 0, 0.1, 0.9},
     .longest_span = 192,
     .large = true}};

class SpanProjectionTest : public OpTest {
 protected:
  // Tensors of one case. Rows of x and dy that no product may read are NaN.
  struct Operands {
    Case c;
    std::vector<std::int64_t> first, panel_first;  // row of every head; of every column, from where the device computes
    bool skips;
    std::vector<Operand> span;
    Operand x, weight, bias, y, dy, dweight, dbias;

    DistanceScores read(Dtype dtype) const {
      DistanceScores s{.q = Tensor(nullptr, dtype, {c.batch, c.n_q, c.heads, c.key_size}),
                       .k = Tensor(nullptr, dtype, {c.batch, c.n_k, c.heads, c.key_size})};
      if (!span.empty()) s.span = span[0];
      s.longest_span = c.longest_span;
      s.ramp = c.ramp;
      s.window = c.window;
      s.self = c.self;
      s.dilation = c.dilation;
      return s;
    }
    SpanProjectionArgs forward() const {
      return {.read = read(x->dtype()), .x = x, .weight = weight, .y = y, .bias = c.biased ? Tensor(bias) : Tensor{}};
    }
    SpanProjectionBackwardArgs backward() const {
      return {
          .read = read(x->dtype()), .dy = dy, .x = x, .dweight = dweight, .dbias = c.biased ? Tensor(dbias) : Tensor{}};
    }
    bool reads(std::int64_t row, std::int64_t column) const {
      return row % c.n_k >= first[static_cast<std::size_t>(c.head_of(column))];
    }
    bool computes(std::int64_t row, std::int64_t column) const {
      return row % c.n_k >= panel_first[static_cast<std::size_t>(column)];
    }
  };

  // By definition, from the weight of every pair.
  static std::vector<std::int64_t> first_rows(const Case& c) {
    std::vector<float> rounded_spans(c.span.begin(), c.span.end());
    DistanceScores s{.q = Tensor(nullptr, Dtype::f32, {1, c.n_q, c.heads, 1}),
                     .k = Tensor(nullptr, Dtype::f32, {1, c.n_k, c.heads, 1})};
    if (!c.span.empty()) s.span = Tensor(rounded_spans.data(), Dtype::f32, {c.heads});
    s.longest_span = c.longest_span;
    s.ramp = c.ramp;
    s.window = c.window;
    s.self = c.self;
    s.dilation = c.dilation;
    std::vector<std::int64_t> first;
    for (std::int64_t h = 0; h < c.heads; ++h) {
      std::int64_t row = c.n_k - c.n_q;
      for (std::int64_t i = 0; i < c.n_q; ++i)
        for (std::int64_t j = 0; j < row; ++j)
          if (s.weight(h, i, j) > 0) row = j;
      first.push_back(row);
    }
    return first;
  }

  Operands operands(const Case& c) {
    const Shape in{c.batch, c.n_k, c.in}, out{c.batch, c.n_k, c.out()};
    const double unit = 1 / std::sqrt(static_cast<double>(c.in));
    const auto plain = [&](const Shape& shape, std::uint32_t stream) { return normals(shape, stream).values(); };
    Operands o{c,
               first_rows(c),
               {},
               true,
               {},
               normals(in, 1),
               normals({c.out(), c.in}, compute(), 2, unit),
               normals({c.out()}, 3),
               result(out),
               normals(out, 4),
               normals({c.out(), c.in}, exact(), 5),
               normals({c.out()}, exact(), 6)};
    if (!c.span.empty()) o.span.push_back(with_values({c.heads}, exact(), c.span));
    if (device() == Device::cuda) o.skips = !c.biased && kernels::cuda::uses_panels(o.read(compute()), o.x, o.y);
    for (std::int64_t column = 0; column < c.out(); ++column) o.panel_first.push_back(first_computed(o, column));
    std::vector<double> x = plain(in, 1), dy = plain(out, 4);
    for (std::int64_t r = 0; r < c.batch * c.n_k; ++r) {
      bool any = false;
      for (std::int64_t k = 0; k < c.out(); ++k) {
        any = any || o.computes(r, k);
        double& gradient = dy[static_cast<std::size_t>(r * c.out() + k)];
        if (!o.reads(r, k)) gradient = o.computes(r, k) ? 0 : std::nan("");
      }
      for (std::int64_t k = 0; !any && k < c.in; ++k) x[static_cast<std::size_t>(r * c.in + k)] = std::nan("");
    }
    o.x = with_values(in, compute(), std::move(x));
    o.dy = with_values(out, compute(), std::move(dy));
    return o;
  }
  // The row from which a column is computed: on a GPU the tile of the first row of the panel, or 0.
  std::int64_t first_computed(const Operands& o, std::int64_t column) const {
    if (!o.skips) return 0;
    const auto of = [&](std::int64_t k) { return o.first[static_cast<std::size_t>(o.c.head_of(k))]; };
    if (device() == Device::cpu) return of(column);
    std::int64_t first = o.c.n_k;
    for (std::int64_t k = column / 128 * 128; k < column / 128 * 128 + 128; ++k) first = std::min(first, of(k));
    return first / 64 * 64;
  }

  template <class T>
  static std::vector<T> projected(const Operands& o) {
    std::vector<T> all;
    for (std::int64_t r = 0; r < o.c.batch * o.c.n_k; ++r)
      for (std::int64_t k = 0; k < o.c.out(); ++k) {
        if (!o.reads(r, k)) continue;
        T sum = 0;
        for (std::int64_t i = 0; i < o.c.in; ++i)
          sum += static_cast<T>(o.x.at(r * o.c.in + i)) * static_cast<T>(o.weight.at(k * o.c.in + i));
        all.push_back(o.c.biased ? sum + static_cast<T>(o.bias.at(k)) : sum);
      }
    return all;
  }
  template <class T>
  static std::vector<T> weight_gradient(const Operands& o) {
    std::vector<T> all(static_cast<std::size_t>(o.c.out() * o.c.in));
    for (std::int64_t r = 0; r < o.c.batch * o.c.n_k; ++r)
      for (std::int64_t k = 0; k < o.c.out(); ++k) {
        if (!o.reads(r, k)) continue;
        const T dy = static_cast<T>(o.dy.at(r * o.c.out() + k));
        for (std::int64_t i = 0; i < o.c.in; ++i)
          all[static_cast<std::size_t>(k * o.c.in + i)] += dy * static_cast<T>(o.x.at(r * o.c.in + i));
      }
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += static_cast<T>(o.dweight.values()[i]);
    return all;
  }
  template <class T>
  static std::vector<T> bias_gradient(const Operands& o) {
    std::vector<T> all(o.dbias.values().begin(), o.dbias.values().end());
    for (std::int64_t r = 0; r < o.c.batch * o.c.n_k; ++r)
      for (std::int64_t k = 0; k < o.c.out(); ++k)
        if (o.reads(r, k)) all[static_cast<std::size_t>(k)] += static_cast<T>(o.dy.at(r * o.c.out() + k));
    return all;
  }
  bool skipped(const Case& c) const { return c.large && device() == Device::cpu; }
};
LONGSTRIDE_OP_TESTS(SpanProjectionTest);

TEST_P(SpanProjectionTest, RowsThatHeadsReadAreTheProduct) {
  for (const Case& c : cases) {
    if (skipped(c)) continue;
    SCOPED_TRACE(c.name);
    Operands o = operands(c);
    run(o.forward(), {&o.y});
    const std::vector<double> y = o.y.found();
    std::vector<double> read;
    std::int64_t unfinished = 0, touched = 0;
    for (std::int64_t r = 0; r < c.batch * c.n_k; ++r)
      for (std::int64_t k = 0; k < c.out(); ++k) {
        const double value = y[static_cast<std::size_t>(r * c.out() + k)];
        if (o.reads(r, k)) read.push_back(value);
        unfinished += o.computes(r, k) && !std::isfinite(value);
        touched += !o.computes(r, k) && !std::isnan(value);
      }
    EXPECT_EQ(unfinished, 0);
    EXPECT_EQ(poisons() ? touched : 0, 0);
    expect_as_exact_as_plain("y", compute(), read, [&](auto zero) { return projected<decltype(zero)>(o); });
  }
}

TEST_P(SpanProjectionTest, GradientsSumTheRowsThatHeadsRead) {
  for (const Case& c : cases) {
    if (skipped(c)) continue;
    SCOPED_TRACE(c.name);
    Operands o = operands(c);
    run(o.backward(), {&o.dweight, &o.dbias});
    expect_as_exact_as_plain("dW", o.dweight, [&](auto zero) { return weight_gradient<decltype(zero)>(o); });
    if (c.biased) expect_as_exact_as_plain("db", o.dbias, [&](auto zero) { return bias_gradient<decltype(zero)>(o); });
  }
}

// Behind scratch is what the rest of a backward pass has there.
TEST_P(SpanProjectionTest, NothingIsWrittenBehindScratch) {
  if (device() != Device::cpu) return;
  for (const Case& c : cases) {
    if (skipped(c) || !c.biased) continue;
    SCOPED_TRACE(c.name);
    Operands o = operands(c);
    SpanProjectionBackwardArgs args = o.backward();
    const Tensor needed = args.scratch_on(Device::cpu);
    constexpr std::size_t behind = 1 << 16;
    std::vector<std::byte> memory(needed.bytes() + behind, std::byte{7});
    args.scratch = Tensor(memory.data(), needed.dtype(), needed.shape());
    kernels::cpu::span_projection_backward(args, {});
    EXPECT_EQ(std::count(memory.end() - behind, memory.end(), std::byte{7}), behind);
  }
}

// A case that the kernels for Hopper take must skip something there, or the tests above show nothing about them.
TEST_P(SpanProjectionTest, SomeRowsAreSkipped) {
  std::int64_t cases_that_skip = 0;
  for (const Case& c : cases) {
    if (skipped(c)) continue;
    const Operands o = operands(c);
    for (const std::int64_t first : o.panel_first) {
      if (first == 0) continue;
      ++cases_that_skip;
      break;
    }
  }
  const bool skips =
      device() == Device::cpu ||
      (compute() != Dtype::f32 &&
       kernels::cuda::uses_panels(operands(cases[0]).read(compute()), operands(cases[0]).x, operands(cases[0]).y));
  EXPECT_GE(cases_that_skip, skips ? 6 : 0);
}

TEST_P(SpanProjectionTest, RefusesColumnsThatMakeNoWholeHeads) {
  Operands o = operands(cases[0]);
  SpanProjectionArgs args = o.forward();
  args.y = args.y.slice(2, 0, o.c.out() - 1);
  args.weight = args.weight.slice(0, 0, o.c.out() - 1);
  EXPECT_THROW(ops::run(ctx, args), InternalError);
}

}  // namespace
}  // namespace longstride::testing::span_projection_test
