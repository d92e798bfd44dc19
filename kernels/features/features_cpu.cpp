#include "kernels/features/features.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention/cpu/tiles.h"
#include "kernels/base/fast_math.h"
#include "kernels/base/philox.h"
#include "kernels/features/directions.h"
#include "kernels/gemm/blas.h"

namespace longstride::kernels::cpu {
namespace {

constexpr std::int64_t chunk_rows = 128;

// A chunk of one head's rows.
template <class T>
struct FeatureRows {
  std::int64_t s, h, first, rows, d, m;
  HeadRows<const T> x;
  HeadRows<T> features;
  const T* projection;
  T scale;  // d^(-1/4)

  T half_squares(std::int64_t t) const { return T(0.5) * scale * scale * dot(x.at(first + t), x.at(first + t), d); }
};

// Calls f with every chunk, in parallel.
template <class T, class Args, class F>
void each_chunk(const Args& args, F&& f) {
  const std::int64_t n = args.x.size(1), heads = args.x.size(2), d = args.x.size(3), m = args.projection.size(1);
  const T scale = static_cast<T>(std::pow(static_cast<double>(d), -0.25));
#pragma omp parallel for schedule(static) collapse(2) if (args.x.count() * m > 16384)
  for (std::int64_t unit = 0; unit < args.x.size(0) * heads; ++unit)
    for (std::int64_t first = 0; first < n; first += chunk_rows) {
      const std::int64_t s = unit / heads, h = unit % heads;
      const T* projection = args.projection.template as<const T>() + h % args.projection.size(0) * m * d;
      f(FeatureRows<T>{s, h, first, std::min(chunk_rows, n - first), d, m, rows_of<const T>(args.x, s, h),
                       rows_of<T>(args.features, s, h), projection, scale});
    }
}

// Products w_i . x' in the first m features of each row, and the row's largest exponent in c.
template <class T>
void project(const FeaturesArgs& args, const FeatureRows<T>& r) {
  multiply<T>(r.rows, r.m, r.d, {r.x.at(r.first), r.x.stride}, {r.projection, r.d, true}, false,
              {r.features.at(r.first), r.features.stride});
  for (std::int64_t t = 0; t < r.rows; ++t) {
    T* e = r.features.at(r.first + t);
    const T half = r.half_squares(t);
    T largest = -std::numeric_limits<T>::infinity();
    for (std::int64_t i = 0; i < r.m; ++i) {
      e[i] *= r.scale;
      largest = std::max(largest, e[i]);
    }
    args.scratch.as<T>()[(r.s * args.x.size(2) + r.h) * args.x.size(1) + r.first + t] =
        args.kind == FeatureKind::softmax ? largest - half : half;
  }
}

// From the largest exponent of each key to c, and the decays.
template <class T>
void accumulate(const FeaturesArgs& args) {
  const std::int64_t n = args.x.size(1), heads = args.x.size(2);
  constexpr T none = -std::numeric_limits<T>::infinity();
#pragma omp parallel for schedule(static) if (args.scratch.count() > 16384)
  for (std::int64_t unit = 0; unit < args.x.size(0) * heads; ++unit) {
    const auto begins = [&](std::int64_t t) {
      return t > 0 && args.begin.given() && args.begin.as<const std::int32_t>()[unit / heads * n + t] == t;
    };
    T* c = args.scratch.as<T>() + unit * n;
    T so_far = args.first_c.given() ? args.first_c.as<const T>()[unit] : none;
    if (args.states && so_far == 0) so_far = none;
    for (std::int64_t t = 0; t < n; ++t) {
      const T before = begins(t) ? none : so_far;
      c[t] = so_far = std::max(before, c[t]);
      if (args.decay.given())
        args.decay.as<T>()[(unit / heads * n + t) * heads + unit % heads] = before > none ? before - so_far : T(0);
    }
    if (args.last_c.given())
      args.last_c.as<T>()[unit] = args.states && so_far == 0 ? std::numeric_limits<T>::min() : so_far;
    if (args.direction == Direction::past) continue;
    for (std::int64_t t = n - 1; t-- > 0;)
      if (!begins(t + 1)) c[t] = c[t + 1];
  }
}

template <class T>
void write_features(const FeaturesArgs& args, const FeatureRows<T>& r) {
  for (std::int64_t t = 0; t < r.rows; ++t) {
    T* e = r.features.at(r.first + t);
    const T half = r.half_squares(t);
    const T c = args.scratch.as<const T>()[(r.s * args.x.size(2) + r.h) * args.x.size(1) + r.first + t];
    if (args.kind == FeatureKind::softmax)
      for (std::int64_t i = 0; i < r.m; ++i) e[i] = exp_of(e[i] - half - c);
    if (args.kind == FeatureKind::relu)
      for (std::int64_t i = 0; i < r.m; ++i) e[i] = std::max(e[i], T(0)) + T(0.001);
    if (args.kind == FeatureKind::trigonometric)
      for (std::int64_t i = 0; i < r.m; ++i) {
        const T size = exp_of(half - c), angle = e[i];
        e[i] = std::cos(angle) * size;
        e[r.m + i] = std::sin(angle) * size;
      }
  }
}

// dfeatures become those of the products, in their first m columns; dx gets the gradient through |x'|^2.
template <class T>
void to_products(const FeaturesBackwardArgs& args, const FeatureRows<T>& r, const HeadRows<T>& d,
                 const HeadRows<T>& dx) {
  for (std::int64_t t = 0; t < r.rows; ++t) {
    const T* phi = r.features.at(r.first + t);
    T* g = d.at(r.first + t);
    const T along = args.kind == FeatureKind::relu ? T(0) : r.scale * dot<T>(g, phi, d.size);
    for (std::int64_t j = 0; j < r.d; ++j)
      dx.at(r.first + t)[j] = (args.kind == FeatureKind::softmax ? -along : along) * r.scale * r.x.at(r.first + t)[j];
    for (std::int64_t i = 0; i < r.m; ++i)
      if (args.kind == FeatureKind::softmax)
        g[i] *= r.scale * phi[i];
      else if (args.kind == FeatureKind::relu)
        g[i] = phi[i] > T(0.001) ? r.scale * g[i] : T(0);
      else
        g[i] = r.scale * (g[r.m + i] * phi[i] - g[i] * phi[r.m + i]);
  }
}

// Rows [first, first + count) of (rows, d) made orthogonal, with the lengths that they had.
void orthogonalise(double* rows, std::int64_t count, std::int64_t d) {
  const auto length = [&](const double* x) { return std::sqrt(dot(x, x, d)); };
  std::vector<double> lengths;
  for (std::int64_t i = 0; i < count; ++i) {
    double* x = rows + i * d;
    lengths.push_back(length(x));
    for (std::int64_t j = 0; j < i; ++j) {
      const double along = dot(x, rows + j * d, d);
      for (std::int64_t e = 0; e < d; ++e) x[e] -= along * rows[j * d + e];
    }
    const double rest = length(x);
    for (std::int64_t e = 0; e < d; ++e) x[e] /= rest;
  }
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t e = 0; e < d; ++e) rows[i * d + e] *= lengths[static_cast<std::size_t>(i)];
}

// Rows of a run get directions from a product of matrices, and keep their lengths.
void direct(const DrawProjectionArgs& args, double* rows, std::int64_t run, std::int64_t count, std::uint32_t redraw) {
  const auto d = static_cast<int>(args.projection.size(2));
  const bool hadamard = args.orthogonal == Orthogonality::hadamard;
  const std::uint64_t of_run = hadamard ? hadamard_draws(d) : givens_draws(d);
  const DirectionDraws draws{args.seed, first_direction + static_cast<std::uint64_t>(run) * of_run, redraw,
                             domain_of(Purpose::projection, args.layer)};
  for (int i = 0; i < count; ++i) {
    double* const x = rows + i * d;
    const double length = std::sqrt(dot(x, x, d));
    hadamard ? hadamard_row(x, i, d, draws) : givens_row(x, i, d, draws);
    for (int e = 0; e < d; ++e) x[e] *= length;
  }
}

}  // namespace

void features(const FeaturesArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_chunk<T>(args, [&](const FeatureRows<T>& rows) { project(args, rows); });
    if (args.keys) accumulate<T>(args);
    each_chunk<T>(args, [&](const FeatureRows<T>& rows) { write_features(args, rows); });
  });
}

void features_backward(const FeaturesBackwardArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_chunk<T>(args, [&](const FeatureRows<T>& r) {
      const HeadRows<T> d = rows_of<T>(args.dfeatures, r.s, r.h), dx = rows_of<T>(args.dx, r.s, r.h);
      to_products(args, r, d, dx);
      multiply<T>(r.rows, r.d, r.m, {d.at(r.first), d.stride}, {r.projection, r.d}, true, {dx.at(r.first), dx.stride});
    });
  });
}

void draw_projection(const DrawProjectionArgs& args, const Launch&) {
  double* drawn = args.scratch.as<double>();
  const std::int64_t m = args.projection.size(1), d = args.projection.size(2), count = args.projection.count();
  const std::uint32_t domain = domain_of(Purpose::projection, args.layer),
                      redraw = args.step != nullptr ? static_cast<std::uint32_t>(*args.step / args.every) : args.redraw;
#pragma omp parallel for if (count > 4096)
  for (std::int64_t e = 0; e < count; ++e)
    drawn[e] = normal_of(philox(args.seed, static_cast<std::uint64_t>(e), redraw, domain));
  const std::int64_t runs = (m + d - 1) / d;
#pragma omp parallel for collapse(2) if (count > 4096)
  for (std::int64_t h = 0; h < args.projection.size(0); ++h)
    for (std::int64_t run = 0; run < runs; ++run) {
      double* const rows = drawn + (h * m + run * d) * d;
      const std::int64_t in_run = std::min(d, m - run * d);
      if (args.orthogonal == Orthogonality::gram_schmidt)
        orthogonalise(rows, in_run, d);
      else if (args.orthogonal != Orthogonality::none)
        direct(args, rows, h * runs + run, in_run, redraw);
    }
  with_float_type(args.projection.dtype(),
                  [&](auto zero) { std::copy_n(drawn, count, args.projection.as<decltype(zero)>()); });
}

}  // namespace longstride::kernels::cpu
