#include <algorithm>
#include <cmath>

#include "kernels/base/add_partials.h"
#include "kernels/base/fast_math.h"
#include "kernels/base/tensor_checks.h"
#include "kernels/scan_gates/scan_gates.h"

namespace longstride::kernels {
namespace {

template <class Args>
void check_gates(Device device, const Args& args, const Tensor& y) {
  const Tensor& x = args.x;
  check_computes(device, x, "a gate's x");
  check_contiguous(x, "a gate's x");
  const Dtype exact = exact_type(device, x.dtype());
  check_vector(y, x.count(), exact, "a gate's y");
  LONGSTRIDE_CHECK(args.rate.given() == (args.gate == ScanGate::softplus), "softplus alone has a rate");
  LONGSTRIDE_CHECK(args.bias.given() == (args.gate != ScanGate::sigmoid), "all gates but sigmoid have a bias");
  if (args.rate.given()) check_vector(args.rate, x.size(-1), exact, "a gate's rate");
  if (args.bias.given()) check_vector(args.bias, x.size(-1), exact, "a gate's bias");
}

}  // namespace

void ScanGatesArgs::check(Device device) const { check_gates(device, *this, y); }

void ScanGatesBackwardArgs::check(Device device) const {
  check_gates(device, *this, dy);
  check_vector(dx, x.count(), x.dtype(), "a gate's dx");
  LONGSTRIDE_CHECK(drate.given() == rate.given() && dbias.given() == bias.given(), "a gate's parameter lacks gradient");
  if (rate.given()) check_vector(drate, x.size(-1), rate.dtype(), "a rate's gradient");
  if (bias.given()) check_vector(dbias, x.size(-1), bias.dtype(), "a gate's dbias");
}

namespace cpu {
namespace {

template <class T>
T softplus(T x) {
  return std::max(x, T(0)) + std::log1p(std::exp(-std::abs(x)));
}

// Adds the share of a row to the sums of rate and bias.
template <class T>
void backward_row(const ScanGatesBackwardArgs& args, std::int64_t row, T* rates, T* biases) {
  const std::int64_t columns = args.x.size(-1);
  const T *x = args.x.as<const T>() + row * columns, *dy = args.dy.as<const T>() + row * columns;
  const T *rate = args.rate.as<const T>(), *bias = args.bias.as<const T>();
  T* dx = args.dx.as<T>() + row * columns;
  const T factor = static_cast<T>(args.factor);
  for (std::int64_t j = 0; j < columns; ++j) {
    if (args.gate == ScanGate::sigmoid) {
      const T s = sigmoid_of(x[j]);
      dx[j] = dy[j] * factor * s * (1 - s);
      continue;
    }
    const T z = x[j] + bias[j];
    if (args.gate == ScanGate::softplus) {
      const T scale = -exp_of(rate[j]);
      dx[j] = dy[j] * scale * sigmoid_of(z);
      rates[j] += dy[j] * scale * softplus(z);
    } else if (args.gate == ScanGate::step) {
      dx[j] = dy[j] * sigmoid_of(z);
    } else {
      dx[j] = dy[j] * factor * sigmoid_of(-z);
    }
    biases[j] += dx[j];
  }
}

}  // namespace

void scan_gates(const ScanGatesArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t count = args.x.count(), columns = args.x.size(-1);
    const T *x = args.x.as<const T>(), *rate = args.rate.as<const T>(), *bias = args.bias.as<const T>();
    T* y = args.y.as<T>();
    const T factor = static_cast<T>(args.factor);
#pragma omp parallel for schedule(static) if (count > 4096)
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t j = i % columns;
      if (args.gate == ScanGate::softplus)
        y[i] = -exp_of(rate[j]) * softplus(x[i] + bias[j]);
      else if (args.gate == ScanGate::step)
        y[i] = softplus(x[i] + bias[j]);
      else
        y[i] = args.gate == ScanGate::sigmoid ? factor * sigmoid_of(x[i]) : -factor * softplus(-x[i] - bias[j]);
    }
  });
}

void scan_gates_backward(const ScanGatesBackwardArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t columns = args.x.size(-1), rows = args.x.count() / columns;
    const bool sums = args.bias.given();
    T* partials = args.scratch.as<T>();
    const RowChunks split = row_chunks(rows);
#pragma omp parallel if (args.x.count() > 4096)
    {
#pragma omp for schedule(static) nowait
      for (std::int64_t chunk = 0; chunk < split.chunks; ++chunk) {
        T* const own = sums ? partials + chunk * 2 * columns : nullptr;
        if (sums) std::fill_n(own, 2 * columns, T(0));
        for (std::int64_t row = chunk * split.rows; row < std::min(rows, (chunk + 1) * split.rows); ++row)
          backward_row<T>(args, row, own, sums ? own + columns : nullptr);
      }
      if (args.drate.given()) add_partials(partials, split.chunks, columns, 2 * columns, args.drate.as<T>());
      if (sums) add_partials(partials + columns, split.chunks, columns, 2 * columns, args.dbias.as<T>());
    }
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
