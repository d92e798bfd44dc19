#include "kernels/layer_norm/layer_norm.h"

#include <cmath>

#include "kernels/base/add_partials.h"
#include "kernels/base/tensor_checks.h"
#include "kernels/column_sum/column_sum.h"

namespace longstride::kernels {

void LayerNormArgs::check(Device device) const {
  LONGSTRIDE_CHECK(x.rank() == 2, "x is {}", x.shape().text());
  const std::int64_t rows = x.size(0), width = x.size(1);
  check_rows(x, {rows, width}, x.dtype(), "x");
  check_rows(y, {rows, width}, y.dtype(), "y");
  LONGSTRIDE_CHECK(computes(device, y.dtype()) && goes_with(device, y.dtype(), x.dtype()), "x is {}, y {}",
                   name_of(x.dtype()), name_of(y.dtype()));
  const Dtype exact = exact_type(device, x.dtype());
  check_vector(gain, width, exact, "gain");
  check_vector(bias, width, exact, "bias");
  if (mean.given()) check_vector(mean, rows, exact, "mean");
  if (rstd.given()) check_vector(rstd, rows, exact, "rstd");
}

void LayerNormBackwardArgs::check(Device device) const {
  LONGSTRIDE_CHECK(x.rank() == 2, "x is {}", x.shape().text());
  const std::int64_t rows = x.size(0), width = x.size(1);
  check_rows(x, {rows, width}, x.dtype(), "x");
  check_rows(dy, {rows, width}, dy.dtype(), "dy");
  check_rows(dx, {rows, width}, x.dtype(), "dx");
  LONGSTRIDE_CHECK(computes(device, dy.dtype()) && goes_with(device, dy.dtype(), x.dtype()), "dy is {}, x {}",
                   name_of(dy.dtype()), name_of(x.dtype()));
  const Dtype exact = exact_type(device, x.dtype());
  check_vector(mean, rows, exact, "mean");
  check_vector(rstd, rows, exact, "rstd");
  check_vector(gain, width, exact, "gain");
  check_vector(dgain, width, exact, "dgain");
  check_vector(dbias, width, exact, "dbias");
}

Cost LayerNormBackwardArgs::cost() const {
  return {WorkKind::normalise, bytes_of(dy, x, mean, rstd, dx) + (held == HeldGradient::none ? 0 : bytes_of(dx)), 0};
}

void DropoutAddLayerNormArgs::check(Device device) const {
  dropout.check(device);
  LayerNormArgs::check(device);
  LONGSTRIDE_CHECK(x.data() == dropout.y.data() && x.count() == dropout.y.count(), "x is not the sum");
}

void LayerNormBackwardDropoutArgs::check(Device device) const {
  LayerNormBackwardArgs::check(device);
  if (dropout.y.given())
    dropout.check(device);
  else
    LONGSTRIDE_CHECK(dropout.p == 0 && dy.dtype() == dx.dtype(),
                     "the branch has no gradient of its own, with dropout {} and {} from {}", dropout.p,
                     name_of(dx.dtype()), name_of(dy.dtype()));
  LONGSTRIDE_CHECK(dx.data() == dropout.branch.data() && dx.count() == dropout.branch.count(), "dx is not the branch");
  if (branch_sums.given()) check_vector(branch_sums, x.size(1), dgain.dtype(), "branch_sums");
}

namespace cpu {
namespace {

template <class T>
struct MeanAndScale {
  T mean, rstd;
};

// In two passes, because E[x^2] - E[x]^2 loses all precision when the mean is large.
template <class T>
MeanAndScale<T> statistics(const T* x, std::int64_t width, float epsilon) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < width; ++j) sum += x[j];
  const T mean = sum / static_cast<T>(width);
  T squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t j = 0; j < width; ++j) squares += (x[j] - mean) * (x[j] - mean);
  return {mean, T(1) / std::sqrt(squares / static_cast<T>(width) + static_cast<T>(epsilon))};
}

template <class T>
void forward(const LayerNormArgs& args) {
  const std::int64_t rows = args.x.size(0), width = args.x.size(1);
  const T* gain = args.gain.as<const T>();
  const T* bias = args.bias.as<const T>();
#pragma omp parallel for schedule(static) if (rows * width > 16384)
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* x = args.x.as<const T>() + r * args.x.stride(0);
    T* y = args.y.as<T>() + r * args.y.stride(0);
    const MeanAndScale<T> s = statistics(x, width, args.epsilon);
#pragma omp simd
    for (std::int64_t j = 0; j < width; ++j) y[j] = (x[j] - s.mean) * s.rstd * gain[j] + bias[j];
    if (args.mean.given()) args.mean.as<T>()[r] = s.mean;
    if (args.rstd.given()) args.rstd.as<T>()[r] = s.rstd;
  }
}

// One row of the backward pass; adds the row's share to dgain and dbias.
template <class T>
void backward_row(const T* dy, const T* x, const T* gain, MeanAndScale<T> s, std::int64_t width, HeldGradient held,
                  T* dx, T* dgain, T* dbias) {
  if (held == HeldGradient::of_y) {
#pragma omp simd
    for (std::int64_t j = 0; j < width; ++j) dx[j] += dy[j];
    dy = dx;
  }
  T sum_g = 0, sum_gh = 0;
#pragma omp simd reduction(+ : sum_g, sum_gh)
  for (std::int64_t j = 0; j < width; ++j) {
    const T h = (x[j] - s.mean) * s.rstd;
    const T g = dy[j] * gain[j];
    sum_g += g;
    sum_gh += g * h;
    dgain[j] += dy[j] * h;
    dbias[j] += dy[j];
  }
  const T mean_g = sum_g / static_cast<T>(width), mean_gh = sum_gh / static_cast<T>(width);
  if (held == HeldGradient::of_x) {
#pragma omp simd
    for (std::int64_t j = 0; j < width; ++j)
      dx[j] += s.rstd * (dy[j] * gain[j] - mean_g - (x[j] - s.mean) * s.rstd * mean_gh);
  } else {
#pragma omp simd
    for (std::int64_t j = 0; j < width; ++j)
      dx[j] = s.rstd * (dy[j] * gain[j] - mean_g - (x[j] - s.mean) * s.rstd * mean_gh);
  }
}

template <class T>
void backward(const LayerNormBackwardArgs& args) {
  const std::int64_t rows = args.x.size(0), width = args.x.size(1);
  const T* gain = args.gain.as<const T>();
  const T* mean = args.mean.as<const T>();
  const T* rstd = args.rstd.as<const T>();
  T* partials = args.scratch.as<T>();
  const RowChunks split = row_chunks(rows);
#pragma omp parallel if (rows * width > 16384)
  {
#pragma omp for schedule(static) nowait
    for (std::int64_t chunk = 0; chunk < split.chunks; ++chunk) {
      T* dgain = partials + chunk * 2 * width;
      T* dbias = dgain + width;
      std::fill_n(dgain, 2 * width, T(0));
      const std::int64_t end = std::min(rows, (chunk + 1) * split.rows);
      for (std::int64_t r = chunk * split.rows; r < end; ++r)
        backward_row(args.dy.as<const T>() + r * args.dy.stride(0), args.x.as<const T>() + r * args.x.stride(0), gain,
                     {mean[r], rstd[r]}, width, args.held, args.dx.as<T>() + r * args.dx.stride(0), dgain, dbias);
    }
    add_partials(partials, split.chunks, width, 2 * width, args.dgain.as<T>());
    add_partials(partials + width, split.chunks, width, 2 * width, args.dbias.as<T>());
  }
}

}  // namespace

void layer_norm(const LayerNormArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) { forward<decltype(zero)>(args); });
}

void layer_norm_backward(const LayerNormBackwardArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) { backward<decltype(zero)>(args); });
}

void dropout_add_layer_norm(const DropoutAddLayerNormArgs& args, const Launch& launch) {
  dropout(args.dropout, launch);
  layer_norm(args, launch);
}

void layer_norm_backward_dropout(const LayerNormBackwardDropoutArgs& args, const Launch& launch) {
  layer_norm_backward(args, launch);
  if (args.dropout.y.given()) dropout(args.dropout, launch);
  if (!args.branch_sums.given()) return;
  const Tensor branch = args.dropout.y.given() ? args.dropout.y.reshape(args.dx.shape()) : args.dx;
  column_sum({branch, args.branch_sums, args.scratch}, launch);
}

}  // namespace cpu
}  // namespace longstride::kernels
