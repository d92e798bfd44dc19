#include "framework/ops/query_key.h"

#include "framework/core/errors.h"
#include "tests/gradients/finite_differences.h"
#include "tests/ops/reference.h"

namespace longstride {
namespace {

using kernels::QueryKeyTransform;
using testing::dot;
using testing::normals;
using testing::OwnedTensor;
using testing::TestContext;
using testing::zeros;

constexpr QueryKeyTransform norm{true, 0}, rotary{false, 10000}, both{true, 10000};
constexpr std::int64_t last_position = (std::int64_t{1} << 24) - 1;

// From the definition, with angles in long double: 64 bits, so exact to 1e-11 at 2^24. x (1, seq, heads, size).
template <class T>
OwnedTensor plain(const QueryKeyTransform& transform, const OwnedTensor& x, std::int64_t first) {
  const std::int64_t seq = x->size(1), heads = x->size(2), size = x->size(3);
  OwnedTensor y(x->shape(), kernels::DtypeOf<T>::value);
  for (std::int64_t row = 0; row < seq * heads; ++row) {
    const auto at = [&](std::int64_t d) { return static_cast<T>(x.at(row * size + d)); };
    T squares = 0;
    for (std::int64_t d = 0; d < size; ++d) squares += at(d) * at(d);
    const T root = transform.normalise ? std::sqrt(squares / static_cast<T>(size) + T(1e-6)) : T(1);
    for (std::int64_t d = 0; d < size; ++d) {
      const auto position = static_cast<long double>(first + row / heads);
      const long double pair = static_cast<long double>(d / 2 * 2) / static_cast<long double>(size);
      const long double angle =
          transform.rotates() ? position * std::pow(static_cast<long double>(transform.rotary_base), -pair) : 0;
      const T cosine = static_cast<T>(std::cos(angle)), sine = static_cast<T>(std::sin(angle));
      const T other = transform.rotates() ? at(d ^ 1) / root : T(0);
      y.set(row * size + d, at(d) / root * cosine + (d % 2 == 0 ? -sine : sine) * other);
    }
  }
  return y;
}

TEST(QueryKey, IsTheDefinitionUpToTheLastPosition) {
  TestContext ctx;
  for (const QueryKeyTransform& transform : {norm, rotary, both, QueryKeyTransform{true, 1e6}})
    for (const std::int64_t size : {2, 6, 64, 258})
      for (const std::int64_t first : {std::int64_t{0}, std::int64_t{65000}, last_position - 20}) {
        const OwnedTensor x = normals({1, 21, 3, size}, Dtype::f64, 1, 0.7),
                          x32 = normals(x->shape(), Dtype::f32, 1, 0.7);
        OwnedTensor y(x->shape(), Dtype::f64), y32(x->shape(), Dtype::f32);
        ops::query_key(ctx, transform, x, first, y);
        ops::query_key(ctx, transform, x32, first, y32);
        const OwnedTensor exact = plain<double>(transform, x, first);
        EXPECT_LE(difference(y, exact).error, 1e-7 * difference(y, exact).magnitude) << size << " at " << first;
        if (first == 0) {
          EXPECT_LE(difference(y, exact).error, 1e-13 * difference(y, exact).magnitude) << size;
        }
        testing::expect_as_exact_as_plain("y", y32, plain<float>(transform, x32, first), exact);
      }
}

// What rotation is for: scores depend on how far apart query and key are, and on nothing else of their positions.
TEST(QueryKey, ScoresDependOnTheDistanceAlone) {
  TestContext ctx;
  const std::int64_t size = 64;
  const OwnedTensor q = normals({1, 1, 1, size}, Dtype::f64, 1), k = normals({1, 1, 1, size}, Dtype::f64, 2);
  const auto score = [&](std::int64_t query, std::int64_t key) {
    OwnedTensor a(q->shape(), Dtype::f64), b(k->shape(), Dtype::f64);
    ops::query_key(ctx, rotary, q, query, a);
    ops::query_key(ctx, rotary, k, key, b);
    return dot(a, b);
  };
  for (const std::int64_t distance : {0, 1, 100})
    for (const std::int64_t key : {std::int64_t{1}, std::int64_t{9999}, last_position - 100})
      EXPECT_NEAR(score(key + distance, key), score(distance, 0), 1e-6) << distance << " from " << key;
  EXPECT_GT(std::abs(score(1, 0) - score(0, 0)), 1e-3);
}

// Of views as attention has them, and in the memory of dy.
TEST(QueryKey, GradientsAreThoseOfFiniteDifferences) {
  TestContext ctx;
  for (const QueryKeyTransform& transform : {norm, rotary, both}) {
    const std::int64_t batch = 2, seq = 3, heads = 2, size = 6, width = 3 * heads * size, first = 17;
    const auto rows = [&](const OwnedTensor& qkv) {
      return qkv->slice(-1, heads * size, 2 * heads * size).split_last(heads, size);
    };
    const OwnedTensor qkv = normals({batch, seq, width}, Dtype::f64, 1), dy = normals(qkv->shape(), Dtype::f64, 2);
    const auto loss = [&] {
      OwnedTensor y = zeros(qkv->shape(), Dtype::f64);
      ops::query_key(ctx, transform, rows(qkv), first, rows(y));
      return dot(y, dy);
    };
    OwnedTensor gradient = zeros(qkv->shape(), Dtype::f64), in_place = dy;
    ops::query_key_backward(ctx, transform, rows(dy), rows(qkv), first, rows(gradient));
    testing::expect_gradient("x", qkv, gradient, loss);
    ops::query_key_backward(ctx, transform, rows(in_place), rows(qkv), first, rows(in_place));
    for (std::int64_t i = 0; i < dy->count(); ++i) {
      const bool own = i % width >= heads * size && i % width < 2 * heads * size;
      EXPECT_EQ(in_place.at(i), own ? gradient.at(i) : dy.at(i)) << i;
    }
  }
}

TEST(QueryKey, GradientsInFloatAreThoseInDouble) {
  TestContext ctx;
  for (const QueryKeyTransform& transform : {norm, rotary, both}) {
    const Shape shape = {1, 40, 4, 64};
    OwnedTensor exact(shape, Dtype::f64), found(shape, Dtype::f32);
    ops::query_key_backward(ctx, transform, normals(shape, Dtype::f64, 2), normals(shape, Dtype::f64, 1), 7, exact);
    ops::query_key_backward(ctx, transform, normals(shape, Dtype::f32, 2), normals(shape, Dtype::f32, 1), 7, found);
    const auto d = difference(found, exact);
    EXPECT_LE(d.error, 8 * std::numeric_limits<float>::epsilon() * d.magnitude);
  }
}

TEST(QueryKey, RefusesAnOddSizeToRotateAndNothingToDo) {
  TestContext ctx;
  const OwnedTensor x = zeros({1, 2, 2, 5}, Dtype::f32), y = zeros(x->shape(), Dtype::f32);
  EXPECT_THROW(ops::query_key(ctx, rotary, x, 0, y), InternalError);
  EXPECT_THROW(ops::query_key(ctx, {}, x, 0, y), InternalError);
  EXPECT_THROW(ops::query_key(ctx, norm, x, 0, zeros({1, 2, 1, 10}, Dtype::f32)), InternalError);
  EXPECT_NO_THROW(ops::query_key(ctx, norm, x, 0, y));
}

}  // namespace
}  // namespace longstride
