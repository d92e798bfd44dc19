#include "kernels/query_key/query_key.h"

#include "tests/ops/op_test.h"
#include "tests/support/finite_differences.h"

namespace longstride::testing::query_key_test {
namespace {

using kernels::QueryKeyArgs;
using kernels::QueryKeyBackwardArgs;
using kernels::QueryKeyTransform;

constexpr QueryKeyTransform norm{true, 0}, rotary{false, 10000}, both{true, 10000}, scaled{true, 100, 0.375},
    scale{false, 0, -3};
constexpr std::int64_t last_position = (std::int64_t{1} << 24) - 1;

struct Case {
  std::int64_t batch, seq, heads, size;
  QueryKeyTransform transform;
  std::int64_t first = 0;
};

const Case cases[] = {{1, 1, 1, 64, both},
                      {2, 133, 16, 64, both},
                      {2, 133, 16, 64, norm},
                      {2, 133, 16, 64, rotary},
                      {3, 100, 4, 128, both},
                      {3, 101, 3, 96, both},
                      {2, 77, 5, 32, both},
                      {2, 77, 6, 8, rotary},
                      {4, 40, 2, 6, both},  // rows that are not a multiple of any pack
                      {2, 50, 3, 126, both},
                      {2, 50, 3, 5, norm},
                      {1, 64, 8, 64, both, (1 << 24) - 64},
                      {1, 21, 3, 2, both, 65},
                      {1, 21, 3, 64, {true, 1e6}, 65000},
                      {2, 50, 3, 48, scaled},
                      {2, 50, 3, 7, scale},
                      {1, 21, 3, 258, both}};

// Queries and keys as in attention: (batch, seq, heads, size) in the middle of rows of 3 heads * size.
Shape shape_of(const Case& c) { return {c.batch, c.seq, 3 * c.heads * c.size}; }
Tensor inner(const Tensor& qkv, const Case& c) {
  return qkv.slice(2, c.heads * c.size, 2 * c.heads * c.size).split_last(c.heads, c.size);
}

// f(rotation row, sequence row, index of the head's first element) for every head of every position.
template <class T, class F>
void each_head(const Case& c, F&& f) {
  std::vector<T> cosine(static_cast<std::size_t>(c.size), T(1)), sine(cosine.size(), T(0));
  for (std::int64_t row = 0; row < c.batch * c.seq; ++row) {
    for (std::int64_t d = 0; d < c.size && c.transform.rotates(); ++d) {
      // With angles in long double: 64 bits, so exact to 1e-11 at 2^24.
      const auto position = static_cast<long double>(c.first + row % c.seq);
      const long double pair = static_cast<long double>(d / 2 * 2) / static_cast<long double>(c.size);
      const long double angle = position * std::pow(static_cast<long double>(c.transform.rotary_base), -pair);
      cosine[static_cast<std::size_t>(d)] = static_cast<T>(std::cos(angle));
      sine[static_cast<std::size_t>(d)] = static_cast<T>(d % 2 == 0 ? -std::sin(angle) : std::sin(angle));
    }
    for (std::int64_t head = 0; head < c.heads; ++head)
      f(cosine, sine, (3 * row + 1) * c.heads * c.size + head * c.size);
  }
}

// From the definition. Elements around queries and keys are unchanged.
template <class T>
std::vector<T> plain(const Case& c, const Operand& x, const Operand& y) {
  std::vector<T> out(y.values().begin(), y.values().end());
  const auto size = static_cast<std::size_t>(c.size);
  each_head<T>(c, [&](const std::vector<T>& cosine, const std::vector<T>& sine, std::int64_t at) {
    T squares = 0;
    for (std::int64_t d = 0; d < c.size; ++d) squares += static_cast<T>(x.at(at + d)) * static_cast<T>(x.at(at + d));
    const T root = c.transform.normalise ? std::sqrt(squares / static_cast<T>(size) + T(1e-6)) : T(1);
    for (std::size_t d = 0; d < size; ++d) {
      const auto h = [&](std::size_t e) { return static_cast<T>(x.at(at + static_cast<std::int64_t>(e))) / root; };
      const T turned = c.transform.rotates() ? sine[d] * h(d ^ 1) : T(0);
      out[static_cast<std::size_t>(at) + d] = static_cast<T>(c.transform.scale) * (h(d) * cosine[d] + turned);
    }
  });
  return out;
}

template <class T>
std::vector<T> plain_backward(const Case& c, const Operand& dy, const Operand& x, const Operand& dx) {
  std::vector<T> out(dx.values().begin(), dx.values().end());
  const auto size = static_cast<std::size_t>(c.size);
  std::vector<T> dh(size);
  each_head<T>(c, [&](const std::vector<T>& cosine, const std::vector<T>& sine, std::int64_t at) {
    const auto value = [&](const Operand& o, std::size_t d) {
      return static_cast<T>(o.at(at + static_cast<std::int64_t>(d)));
    };
    T squares = 0, along = 0;
    for (std::size_t d = 0; d < size; ++d) {
      dh[d] = value(dy, d) * cosine[d] + (c.transform.rotates() ? sine[d ^ 1] * value(dy, d ^ 1) : T(0));
      squares += value(x, d) * value(x, d);
      along += dh[d] * value(x, d);
    }
    const T mean = squares / static_cast<T>(size) + T(1e-6), root = c.transform.normalise ? std::sqrt(mean) : T(1);
    const T back = c.transform.normalise ? along / (static_cast<T>(size) * mean) : T(0);
    for (std::size_t d = 0; d < size; ++d)
      out[static_cast<std::size_t>(at) + d] = static_cast<T>(c.transform.scale) * (dh[d] - value(x, d) * back) / root;
  });
  return out;
}

class QueryKeyTest : public OpTest {
 protected:
  // GPU kernels support sizes up to 128.
  bool takes(const Case& c) const { return device() == Device::cpu || c.size <= 128; }
};
LONGSTRIDE_OP_TESTS(QueryKeyTest);

std::string name_of(const Case& c) {
  return std::to_string(c.heads) + " heads of " + std::to_string(c.size) + " from " + std::to_string(c.first);
}

// In fp64 the angle is a number of turns in fp64, whose error at 2^24 is below 1e-8 radians.
double angle_error(const Case& c, Dtype dtype) { return dtype == Dtype::f64 && c.first > 0 ? 1e-7 : 0; }

TEST_P(QueryKeyTest, IsAsExactAsTheDefinitionUpToTheLastPosition) {
  for (const Case& c : cases) {
    if (!takes(c)) continue;
    Operand qkv = normals(shape_of(c), 1, 0.7), y = normals(shape_of(c), 3);
    run(QueryKeyArgs{c.transform, inner(qkv, c), inner(y, c), c.first}, {&y});
    expect_as_exact_as_plain(
        name_of(c), y, [&](auto zero) { return plain<decltype(zero)>(c, qkv, y); }, angle_error(c, compute()));
  }
}

TEST_P(QueryKeyTest, GradientsAreAsExactInPlaceAndElsewhere) {
  for (const Case& c : cases)
    for (const bool in_place : {false, true}) {
      if (!takes(c)) continue;
      Operand qkv = normals(shape_of(c), 1, 0.7), dy = normals(shape_of(c), 2, 0.7), dx = normals(shape_of(c), 3, 0.7);
      Operand& out = in_place ? dy : dx;
      run(QueryKeyBackwardArgs{c.transform, inner(dy, c), inner(qkv, c), inner(out, c), c.first}, {&out});
      expect_as_exact_as_plain(
          name_of(c), out, [&](auto zero) { return plain_backward<decltype(zero)>(c, dy, qkv, out); },
          4 * angle_error(c, compute()));
    }
}

TEST_P(QueryKeyTest, GradientsEqualFiniteDifferences) {
  if (compute() != Dtype::f64) return;
  for (const QueryKeyTransform& transform : {norm, rotary, both, scaled, scale}) {
    const Case c{2, 3, 2, 6, transform, 17};
    const Operand qkv = normals(shape_of(c), 1), dy = normals(shape_of(c), 2);
    const Operand y = filled(shape_of(c), Dtype::f64, 0), dx = filled(shape_of(c), Dtype::f64, 0);
    ops::run(ctx, QueryKeyBackwardArgs{transform, inner(dy, c), inner(qkv, c), inner(dx, c), c.first});
    expect_gradient("x", qkv, dx, [&] {
      ops::run(ctx, QueryKeyArgs{transform, inner(qkv, c), inner(y, c), c.first});
      double total = 0;
      for (std::int64_t i = 0; i < y->count(); ++i) total += y->as<double>()[i] * dy.at(i);
      return total;
    });
  }
}

// As in decoding, the kernel reads the position from the GPU's memory.
TEST_P(QueryKeyTest, AGpuReadsThePositionFromItsOwnMemory) {
  if (device() == Device::cpu) return;
  const Case c{2, 77, 5, 32, both, 1234};
  Operand qkv = normals(shape_of(c), 1), y = result(shape_of(c)), same = result(shape_of(c));
  Operand first = filled({1}, Dtype::i64, 1234);
  run(QueryKeyArgs{c.transform, inner(qkv, c), inner(y, c), c.first}, {&y});
  run(QueryKeyArgs{c.transform, inner(qkv, c), inner(same, c), 0, first->as<std::int64_t>()}, {&same});
  EXPECT_EQ(y.raw(), same.raw());
}

// Documents in a row have the bits of rows of their own.
TEST_P(QueryKeyTest, PositionsMayCountFromTheBeginningOfADocument) {
  const Case c{2, 77, 5, 32, both};
  const std::int64_t ends[] = {0, 1, 40, 77};
  std::vector<double> begins;
  for (std::int64_t i = 0; i < 2 * 77; ++i) begins.push_back(i % 77 < 1 ? 0 : i % 77 < 40 ? 1 : 40);
  const Operand begin = with_values({2, 77}, Dtype::i32, begins);
  Operand qkv = normals(shape_of(c), 1), dy = normals(shape_of(c), 2);
  Operand y = result(shape_of(c)), dx = result(shape_of(c)), alone = result(shape_of(c)), dalone = result(shape_of(c));
  run(QueryKeyArgs{.transform = both, .x = inner(qkv, c), .y = inner(y, c), .begin = begin}, {&y});
  run(
      QueryKeyBackwardArgs{
          .transform = both, .dy = inner(dy, c), .x = inner(qkv, c), .dx = inner(dx, c), .begin = begin},
      {&dx});
  for (int d = 0; d < 3; ++d) {
    const auto of = [&](const Tensor& t) { return inner(t, c).slice(1, ends[d], ends[d + 1]); };
    ops::run(ctx, QueryKeyArgs{.transform = both, .x = of(qkv), .y = of(alone)});
    ops::run(ctx, QueryKeyBackwardArgs{.transform = both, .dy = of(dy), .x = of(qkv), .dx = of(dalone)});
  }
  EXPECT_EQ(y.raw(), alone.raw());
  EXPECT_EQ(dx.raw(), dalone.raw());
}

// The purpose of rotation: scores depend only on the distance between query and key, not on their positions.
TEST_P(QueryKeyTest, ScoresDependOnTheDistanceAlone) {
  if (compute() != Dtype::f64) return;
  const Operand q = normals({1, 1, 1, 64}, 1), k = normals({1, 1, 1, 64}, 2);
  const auto score = [&](std::int64_t query, std::int64_t key) {
    const Operand a = result({1, 1, 1, 64}), b = result({1, 1, 1, 64});
    ops::run(ctx, QueryKeyArgs{rotary, q, a, query});
    ops::run(ctx, QueryKeyArgs{rotary, k, b, key});
    double sum = 0;
    for (std::int64_t i = 0; i < 64; ++i) sum += a->as<double>()[i] * b->as<double>()[i];
    return sum;
  };
  for (const std::int64_t distance : {0, 1, 100})
    for (const std::int64_t key : {std::int64_t{1}, std::int64_t{9999}, last_position - 100})
      EXPECT_NEAR(score(key + distance, key), score(distance, 0), 1e-6) << distance << " from " << key;
  EXPECT_GT(std::abs(score(1, 0) - score(0, 0)), 1e-3);
}

TEST_P(QueryKeyTest, RefusesToRotateAnOddSizeAndToDoNothing) {
  const Operand x = normals({1, 2, 2, 5}, 1), y = result({1, 2, 2, 5}), other = result({1, 2, 1, 10});
  EXPECT_THROW(ops::run(ctx, QueryKeyArgs{rotary, x, y, 0}), InternalError);
  EXPECT_THROW(ops::run(ctx, QueryKeyArgs{{}, x, y, 0}), InternalError);
  EXPECT_THROW(ops::run(ctx, QueryKeyArgs{norm, x, other, 0}), InternalError);
  EXPECT_NO_THROW(ops::run(ctx, QueryKeyArgs{norm, x, y, 0}));
}

}  // namespace
}  // namespace longstride::testing::query_key_test
