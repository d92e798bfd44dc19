#include "kernels/features/features.h"

#include <numeric>

#include "tests/ops/scan/scan_case.h"
#include "tests/support/finite_differences.h"

namespace longstride::testing::features_test {
namespace {

using kernels::Direction;
using kernels::FeatureKind;
using kernels::Orthogonality;
using enum FeatureKind;

struct FeatureShape {
  FeatureKind kind = softmax;
  bool keys = false, both = false, groups = false;
  std::int64_t batch = 1, n = 200, heads = 2, d = 16, m = 24;
  bool projection_per_head = true;
  double deviation = 1;

  Shape x() const { return {batch, n, heads, d}; }
  Shape projection() const { return {projection_per_head ? heads : 1, m, d}; }
  Shape features() const { return {batch, n, heads, kernels::features_of(kind, m)}; }
  bool decays() const { return keys && !both && kind != relu; }
};

class FeaturesTest : public ScanTest {
 protected:
  struct Case {
    FeatureShape shape;
    Operand x, projection, features;
    std::optional<Operand> decay = {};
    std::optional<Operand> begin = {};
    std::vector<std::int32_t> bounds = {};

    kernels::FeaturesArgs args() {
      const FeatureShape& s = shape;
      return {.kind = s.kind,
              .x = x,
              .projection = projection,
              .features = features,
              .keys = s.keys,
              .decay = ScanOperands::given(decay),
              .begin = ScanOperands::given(begin),
              .direction = s.both ? Direction::both : Direction::past};
    }
  };

  Case drawn(const FeatureShape& s, std::uint32_t stream) {
    Case c{s, normals(s.x(), compute(), stream, s.deviation), normals(s.projection(), exact(), 3),
           result(s.features())};
    if (s.decays()) c.decay = result({s.batch, s.n, s.heads}, exact());
    if (!s.groups) return c;
    const ScanShape rows{.batch = s.batch, .n = s.n};
    c.bounds = drawn_bounds(rows);
    c.begin = bounds_of(rows, c.bounds);
    return c;
  }

  static std::vector<FeatureShape> shapes() {
    std::vector<FeatureShape> shapes;
    for (const FeatureKind kind : {softmax, trigonometric, relu})
      for (int bits = 0; bits < 8; ++bits)
        if ((bits & 1) != 0 || bits == 0) shapes.push_back({kind, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0});
    return shapes;
  }

  // w_i . x' of a row, and |x'|^2 / 2 behind them.
  template <class T>
  static std::vector<T> products(const Case& c, std::int64_t s, std::int64_t t, std::int64_t h) {
    const std::int64_t d = c.shape.d, row = ((s * c.shape.n + t) * c.shape.heads + h) * d;
    const T scale = static_cast<T>(std::pow(static_cast<double>(d), -0.25));
    std::vector<T> e;
    for (std::int64_t i = 0; i <= c.shape.m; ++i) {
      T sum = 0;
      const std::int64_t w = ((c.shape.projection_per_head ? h : 0) * c.shape.m + i) * d;
      for (std::int64_t j = 0; j < d; ++j) {
        const T x = scale * static_cast<T>(c.x.at(row + j));
        sum += i < c.shape.m ? x * static_cast<T>(c.projection.at(w + j)) : x * x / 2;
      }
      e.push_back(sum);
    }
    return e;
  }

  // Features and decays by their definition.
  template <class T>
  static std::pair<std::vector<T>, std::vector<T>> plain(const Case& c) {
    const FeatureShape& s = c.shape;
    const std::int64_t width = kernels::features_of(s.kind, s.m);
    std::vector<T> features(static_cast<std::size_t>(s.features().count()));
    std::vector<T> decay(static_cast<std::size_t>(s.batch * s.n * s.heads));
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t h = 0; h < s.heads; ++h) {
        std::vector<std::vector<T>> all;
        std::vector<T> tops;  // one per position
        for (std::int64_t t = 0; t < s.n; ++t) {
          const std::vector<T>& e = all.emplace_back(products<T>(c, b, t, h));
          tops.push_back(s.kind == softmax ? *std::max_element(e.begin(), e.end() - 1) - e.back() : e.back());
        }
        const auto largest = [&](std::int64_t from, std::int64_t to) {
          T most = -std::numeric_limits<T>::infinity();
          for (; from < to; ++from) most = std::max(most, tops[static_cast<std::size_t>(from)]);
          return most;
        };
        for (std::int64_t t = 0; t < s.n; ++t) {
          std::int64_t first = 0, end = t + 1;
          if (s.groups) first = c.bounds[static_cast<std::size_t>(b * s.n + t)];
          while (s.both && end < s.n && !(s.groups && c.bounds[static_cast<std::size_t>(b * s.n + end)] == end)) ++end;
          const T at = s.keys ? largest(first, end) : largest(t, t + 1), before = largest(first, t);
          const auto row = static_cast<std::size_t>((b * s.n + t) * s.heads + h);
          decay[row] = t > first ? before - at : T(0);
          const std::vector<T>& e = all[static_cast<std::size_t>(t)];
          T* phi = &features[row * static_cast<std::size_t>(width)];
          for (std::int64_t i = 0; i < s.m; ++i) {
            const T p = e[static_cast<std::size_t>(i)];
            if (s.kind == softmax) phi[i] = std::exp(p - e.back() - at);
            if (s.kind == relu) phi[i] = std::max(p, T(0)) + T(0.001);
            if (s.kind != trigonometric) continue;
            phi[i] = std::cos(p) * std::exp(e.back() - at);
            phi[s.m + i] = std::sin(p) * std::exp(e.back() - at);
          }
        }
      }
    return {features, decay};
  }

  // Attention by features, from q, k and v in double.
  struct Attention {
    Case q, k;
    ScanOperands scan;
  };
  Attention attention(FeatureShape s, double deviation_of_keys) {
    Case q = drawn(s, 1);
    s.keys = true, s.deviation = deviation_of_keys;
    Case k = drawn(s, 2);
    ScanShape shape{s.decays() ? kernels::ScanForm::gated : kernels::ScanForm::sum,
                    s.decays() ? ScanDecay::head : ScanDecay::none, true, s.both, s.groups};
    shape.n = s.n, shape.heads = s.heads, shape.batch = s.batch, shape.value_size = 5;
    shape.key_size = kernels::features_of(s.kind, s.m);
    ScanOperands scan = operands(shape);
    scan.q = q.features, scan.k = k.features, scan.begin = k.begin;
    if (s.decays()) scan.decay = k.decay;
    return {q, k, scan};
  }
  void compute_attention(Attention& a) {
    ops::run(ctx, a.q.args());
    ops::run(ctx, a.k.args());
    ops::run(ctx, a.scan.forward());
  }
};

LONGSTRIDE_OP_TESTS(FeaturesTest);

TEST_P(FeaturesTest, AreAsExactAsTheirDefinition) {
  for (FeatureShape s : shapes()) {
    SCOPED_TRACE(
        fmt::format("kind {}, keys {}, both {}, groups {}", static_cast<int>(s.kind), s.keys, s.both, s.groups));
    for (const auto& [d, m] : {std::pair{10, 7}, {40, 200}}) {
      s.batch = 2, s.n = s.groups ? 150 : 40, s.projection_per_head = s.groups, s.d = d, s.m = m;
      Case c = drawn(s, 1);
      std::vector<Operand*> written{&c.features};
      if (c.decay) written.push_back(&*c.decay);
      run(c.args(), written);
      expect_as_exact_as_plain("features", c.features, [&](auto zero) { return plain<decltype(zero)>(c).first; });
      if (c.decay)
        expect_as_exact_as_plain("decay", compute(), c.decay->found(),
                                 [&](auto zero) { return plain<decltype(zero)>(c).second; });
    }
  }
}

// From features as they are rounded.
TEST_P(FeaturesTest, GradientsAreAsExactAsTheirDefinition) {
  for (const FeatureKind kind : {softmax, relu})
    for (const auto& [d, m] : {std::pair{10, 24}, {40, 200}, {64, 256}}) {
      FeatureShape s{.kind = kind, .d = d, .m = m};
      Case c = drawn(s, 1);
      ops::run(ctx, c.args());
      const std::vector<double> phi = c.features.found();
      Operand dphi = normals(s.features(), compute(), 4), dx = result(s.x());
      ops::run(ctx, kernels::FeaturesBackwardArgs{kind, c.x, c.projection, c.features, dphi, dx});
      const double least = rounded(0.001, compute());  // where no product is positive
      expect_as_exact_as_plain("dx", dx, [&](auto zero) {
        using T = decltype(zero);
        const T scale = static_cast<T>(std::pow(static_cast<double>(s.d), -0.25));
        std::vector<T> right;
        for (std::int64_t row = 0; row < s.batch * s.n * s.heads; ++row)
          for (std::int64_t j = 0; j < s.d; ++j) {
            T sum = 0;
            for (std::int64_t i = 0; i < s.m; ++i) {
              const double p = phi[static_cast<std::size_t>(row * s.m + i)];
              const T g = static_cast<T>(dphi.at(row * s.m + i)),
                      w = static_cast<T>(c.projection.at((row % s.heads * s.m + i) * s.d + j));
              if (kind == relu) sum += p > least ? g * w : T(0);
              if (kind == softmax) sum += g * static_cast<T>(p) * (w - scale * static_cast<T>(c.x.at(row * s.d + j)));
            }
            right.push_back(scale * sum);
          }
        return right;
      });
    }
}

// In 16 bits the features are rounded.
class ExactFeaturesTest : public FeaturesTest {};
INSTANTIATE_TEST_SUITE_P(On, ExactFeaturesTest, ::testing::ValuesIn(precisions, precisions + 3),
                         [](const auto& i) { return name_of(i.param); });

// The quotient of sums of exponentials, each relative to the largest of its row.
TEST_P(ExactFeaturesTest, CausalAttentionNeitherOverflowsNorLosesWhatAStrongKeyHides) {
  for (const double deviation : {0.5, 4.0, 16.0}) {
    FeatureShape s;
    s.groups = true, s.m = 12;
    Attention a = attention(s, deviation);
    compute_attention(a);
    const std::int64_t size = a.scan.shape.value_size;
    expect_as_exact_as_plain(fmt::format("deviation {}", deviation), a.scan.o, [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> o;
      for (std::int64_t t = 0; t < s.n; ++t)
        for (std::int64_t h = 0; h < s.heads; ++h) {
          const std::vector<T> q = products<T>(a.q, 0, t, h);
          std::vector<T> sum(static_cast<std::size_t>(size) + 1);
          T top = -std::numeric_limits<T>::infinity();
          for (const bool adds : {false, true})
            for (std::int64_t key = a.k.bounds[static_cast<std::size_t>(t)]; key <= t; ++key) {
              const std::vector<T> k = products<T>(a.k, 0, key, h);
              for (std::size_t i = 0; i + 1 < k.size(); ++i) {
                const T e = q[i] + (k[i] - k.back());
                if (!adds) top = std::max(top, e);
                const T p = adds ? std::exp(e - top) : T(0);
                for (std::int64_t j = 0; j <= size; ++j)
                  sum[static_cast<std::size_t>(j)] +=
                      p * (j < size ? static_cast<T>(a.scan.v.at((key * s.heads + h) * size + j)) : T(1));
              }
            }
          for (std::int64_t j = 0; j < size; ++j) o.push_back(sum[static_cast<std::size_t>(j)] / sum.back());
        }
      return o;
    });
  }
}

TEST_P(FeaturesTest, NoKeyChangesWhatIsBeforeIt) {
  for (const FeatureKind kind : {softmax, trigonometric, relu}) {
    FeatureShape s{.kind = kind, .keys = true};
    s.heads = 1;
    Case c = drawn(s, 2);
    std::vector<double> x = c.x.values();
    const auto results = [&] {
      ops::run(ctx, c.args());
      std::vector<double> all = c.features.found();
      all.resize(static_cast<std::size_t>(100 * kernels::features_of(kind, s.m)));
      const std::vector<double> decay = c.decay ? c.decay->found() : std::vector<double>(100);
      all.insert(all.end(), decay.begin(), decay.begin() + 100);
      return all;
    };
    const std::vector<double> before = results();
    for (std::size_t e = static_cast<std::size_t>(100 * s.d); e < x.size(); ++e) x[e] *= 20;
    c.x = with_values(s.x(), compute(), std::move(x));
    EXPECT_EQ(results(), before);
  }
}

TEST_P(FeaturesTest, HalvesThatHandOverTheirCAreTheWhole) {
  FeatureShape s{.kind = softmax, .keys = true};
  Case c = drawn(s, 2);
  ops::run(ctx, c.args());
  const auto features = c.features.raw(), decay = c.decay->raw();
  c.features.reset(), c.decay->reset();
  Operand handed = filled({1, s.heads}, exact(), -std::numeric_limits<double>::infinity());
  for (const auto& [from, to] : {std::pair{0, 128}, {128, 200}}) {
    kernels::FeaturesArgs half = c.args();
    for (Tensor* t : {&half.x, &half.features, &half.decay}) *t = t->slice(1, from, to);
    half.first_c = half.last_c = handed;
    ops::run(ctx, half);
  }
  EXPECT_EQ(c.features.raw(), features);
  EXPECT_EQ(c.decay->raw(), decay);
}

// As states of rows, whose 0 is none: keys of 0, whose exponents are 0, hand over a c that is not.
TEST_P(FeaturesTest, StatesBeginWithNoneAndNeverEndSo) {
  FeatureShape s{.kind = softmax, .keys = true, .deviation = 8};
  Case c = drawn(s, 2);
  ops::run(ctx, c.args());
  const auto features = c.features.raw(), decay = c.decay->raw();
  Operand state = filled({1, s.heads}, exact(), 0);
  kernels::FeaturesArgs args = c.args();
  args.first_c = args.last_c = state;
  args.states = true;
  run(args, {&c.features, &*c.decay, &state});
  EXPECT_EQ(c.features.raw(), features);
  EXPECT_EQ(c.decay->raw(), decay);
  c.x = filled(s.x(), compute(), 0);
  args.x = c.x;
  state.reset();
  ops::run(ctx, args);
  for (const double value : state.found()) EXPECT_TRUE(value > 0 && value < 1e-30) << value;
}

constexpr Orthogonality orthogonal_kinds[] = {Orthogonality::gram_schmidt, Orthogonality::hadamard,
                                              Orthogonality::givens};

// 20 rows are two runs of 8 and half of one.
TEST_P(FeaturesTest, AProjectionIsOrthogonalAndPureInSeedAndRedraw) {
  Operand independent = result({2, 20, 8}, exact());
  run(kernels::DrawProjectionArgs{.projection = independent, .seed = 5, .redraw = 3, .orthogonal = Orthogonality::none},
      {&independent});
  const std::vector<double> free = independent.found();
  std::vector<std::vector<double>> all;
  for (const Orthogonality kind : orthogonal_kinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    Operand a = result({2, 20, 8}, exact()), b = result({2, 20, 8}, exact()), by_step = result({2, 20, 8}, exact());
    run(kernels::DrawProjectionArgs{.projection = a, .seed = 5, .redraw = 3, .orthogonal = kind}, {&a});
    run(kernels::DrawProjectionArgs{.projection = b, .seed = 5, .redraw = 4, .orthogonal = kind}, {&b});
    EXPECT_NE(a.raw(), b.raw());
    const Operand step = with_values({1}, Dtype::i64, {49});
    run(
        kernels::DrawProjectionArgs{
            .projection = by_step, .seed = 5, .orthogonal = kind, .step = step->as<std::int64_t>(), .every = 12},
        {&by_step});
    EXPECT_EQ(by_step.raw(), b.raw());  // redraw 4
    const std::vector<double> w = a.found();
    const auto dot = [](const std::vector<double>& x, std::size_t i, std::size_t j) {
      return std::inner_product(&x[i * 8], &x[i * 8] + 8, &x[j * 8], 0.0);
    };
    const double near = 100 * half_step_of(exact());
    for (std::size_t i = 0; i < 40; ++i) {
      EXPECT_NEAR(dot(w, i, i), dot(free, i, i), near * dot(free, i, i));
      for (std::size_t j = i / 20 * 20 + i % 20 / 8 * 8; j < i; ++j) EXPECT_NEAR(dot(w, i, j), 0, near * 10);
    }
    for (std::size_t i = 0; i < 8; ++i)  // runs are drawn apart
      EXPECT_GT(
          std::abs(dot(w, i, i + 8) - std::copysign(std::sqrt(dot(w, i, i) * dot(w, i + 8, i + 8)), dot(w, i, i + 8))),
          near);
    for (const std::vector<double>& other : all) EXPECT_NE(w, other);
    all.push_back(w);
  }
}

class FeatureGradientTest : public FeaturesTest {};
INSTANTIATE_TEST_SUITE_P(On, FeatureGradientTest, ::testing::ValuesIn(precisions, precisions + 1),
                         [](const auto& i) { return name_of(i.param); });

// The finite differences see c and its decay as well: they cancel.
TEST_P(FeatureGradientTest, GradientsOfTheQuotientAreFiniteDifferences) {
  for (FeatureShape s : shapes()) {
    if (!s.keys) continue;
    SCOPED_TRACE(fmt::format("kind {}, both {}, groups {}", static_cast<int>(s.kind), s.both, s.groups));
    s.keys = false, s.n = 20, s.d = 6, s.m = 20;
    Attention a = attention(s, 1);
    const auto loss = [&] {
      compute_attention(a);
      double sum = 0;
      for (std::int64_t e = 0; e < a.scan.o->count(); ++e) sum += a.scan.o->as<const double>()[e] * a.scan.dout.at(e);
      return sum;
    };
    loss();
    ops::run(ctx, a.scan.backward());
    Operand dq = result(s.x()), dk = result(s.x());
    ops::run(ctx, kernels::FeaturesBackwardArgs{s.kind, a.q.x, a.q.projection, a.q.features, a.scan.dq, dq});
    ops::run(ctx, kernels::FeaturesBackwardArgs{s.kind, a.k.x, a.k.projection, a.k.features, a.scan.dk, dk});
    expect_gradient("q", a.q.x, dq, loss, 20, 1e-5);
    expect_gradient("k", a.k.x, dk, loss, 20, 1e-5);
  }
}

// Softmax attention of all keys, by its definition.
std::vector<double> softmax_attention(const FeatureShape& s, const Operand& q, const Operand& k, const Operand& v,
                                      std::int64_t size) {
  std::vector<double> o;
  for (std::int64_t t = 0; t < s.n; ++t) {
    std::vector<double> sum(static_cast<std::size_t>(size) + 1);
    for (std::int64_t key = 0; key < s.n; ++key) {
      double score = 0;
      for (std::int64_t e = 0; e < s.d; ++e) score += q.at(t * s.d + e) * k.at(key * s.d + e);
      const double p = std::exp(score / std::sqrt(static_cast<double>(s.d)));
      for (std::int64_t j = 0; j <= size; ++j)
        sum[static_cast<std::size_t>(j)] += p * (j < size ? v.at(key * size + j) : 1);
    }
    for (std::int64_t j = 0; j < size; ++j) o.push_back(sum[static_cast<std::size_t>(j)] / sum.back());
  }
  return o;
}

// Over draws of the projection, the mean of phi(q) . phi(k) exp(c_q + c_k) / m is exp(q . k / sqrt(d)).
TEST_P(FeatureGradientTest, ProductsEstimateTheKernelWithoutBias) {
  constexpr std::uint32_t redraws = 3000;
  FeatureShape s{.both = true};
  s.n = 1, s.heads = 1, s.m = 48, s.deviation = 0.5;
  Case q = drawn(s, 1), k = drawn(s, 2);
  double score = 0, halves = 0;
  for (std::int64_t e = 0; e < s.d; ++e) {
    score += q.x.at(e) * k.x.at(e) / 4;
    halves += (q.x.at(e) * q.x.at(e) + k.x.at(e) * k.x.at(e)) / 8;
  }
  for (const Orthogonality kind :
       {Orthogonality::none, Orthogonality::gram_schmidt, Orthogonality::hadamard, Orthogonality::givens}) {
    double sum = 0, squares = 0;
    for (std::uint32_t redraw = 0; redraw < redraws; ++redraw) {
      ops::run(ctx, kernels::DrawProjectionArgs{
                        .projection = q.projection, .seed = 2, .redraw = redraw, .orthogonal = kind});
      double estimate = 0;
      for (std::int64_t i = 0; i < s.m; ++i) {
        double along = 0;
        for (std::int64_t e = 0; e < s.d; ++e)
          along += q.projection->as<const double>()[i * s.d + e] * (q.x.at(e) + k.x.at(e)) / 2;
        estimate += std::exp(along - halves) / static_cast<double>(s.m);
      }
      sum += estimate / redraws, squares += estimate * estimate / redraws;
    }
    const double deviation = std::sqrt((squares - sum * sum) / redraws);
    EXPECT_LT(deviation, 0.02 * std::exp(score));  // or the test says nothing
    EXPECT_NEAR(sum, std::exp(score), 4 * deviation) << "orthogonal " << static_cast<int>(kind);
  }
}

TEST_P(FeatureGradientTest, ErrorsFallAsTheRootOfFeaturesAndOrthogonalRowsHaveLess) {
  constexpr std::uint32_t redraws = 40;
  // Root mean square error of attention by drawn features.
  const auto error = [&](std::int64_t m, Orthogonality orthogonal) {
    FeatureShape s{.both = true};
    s.n = 128, s.heads = 1, s.m = m, s.deviation = 0.4;
    Attention a = attention(s, s.deviation);
    const std::vector<double> right = softmax_attention(s, a.q.x, a.k.x, a.scan.v, a.scan.shape.value_size);
    double squares = 0;
    for (std::uint32_t redraw = 0; redraw < redraws; ++redraw) {
      for (const Operand* projection : {&a.q.projection, &a.k.projection})
        ops::run(ctx, kernels::DrawProjectionArgs{
                          .projection = *projection, .seed = 1, .redraw = redraw, .orthogonal = orthogonal});
      compute_attention(a);
      const std::vector<double> o = a.scan.o.found();
      for (std::size_t e = 0; e < o.size(); ++e) squares += (o[e] - right[e]) * (o[e] - right[e]);
    }
    return std::sqrt(squares / (redraws * static_cast<double>(right.size())));
  };
  const double few_independent = error(32, Orthogonality::none), most_independent = error(512, Orthogonality::none);
  for (const Orthogonality kind : orthogonal_kinds) {
    const double few = error(32, kind), more = error(128, kind), most = error(512, kind);
    EXPECT_NEAR(few / more, 2, 0.4) << few << " " << more;
    EXPECT_NEAR(more / most, 2, 0.4) << more << " " << most;
    EXPECT_LT(few, few_independent) << static_cast<int>(kind);
    EXPECT_LT(most, most_independent) << static_cast<int>(kind);
  }
}

}  // namespace
}  // namespace longstride::testing::features_test
