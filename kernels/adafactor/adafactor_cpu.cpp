#include "kernels/adafactor/adafactor.h"

#include <cmath>

#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {

namespace {

double bytes_of_elements(const FactoredMatrices& group, Dtype dtype) {
  return static_cast<double>(group.matrices * group.count()) * static_cast<double>(bytes_of(dtype));
}

void check_offsets(const FactoredMatrices& group, const MatrixOffsets& at, std::int64_t count, const Tensor& flat,
                   const char* name) {
  for (std::int64_t i = 0; i < group.matrices; ++i)
    LONGSTRIDE_CHECK(at.at[i] >= 0 && at.at[i] + count <= flat.count(), "{} elements at {} of {} of {}", count,
                     at.at[i], name, flat.count());
}

}  // namespace

void FactoredMatrices::check(Device device, const Tensor& flat, const char* name) const {
  LONGSTRIDE_CHECK(matrices > 0 && matrices <= MatrixOffsets::most && rows > 0 && columns > 0, "{} matrices of {} x {}",
                   matrices, rows, columns);
  check_computes(device, flat, name);
  check_vector(flat, flat.count(), exact_type(device, moments.dtype()), name);
  check_vector(moments, moments.count(), flat.dtype(), "moments");
  check_offsets(*this, at, count(), flat, name);
  check_offsets(*this, rows_at, rows, moments, "moments");
  check_offsets(*this, columns_at, columns, moments, "moments");
}

void FactoredMomentsArgs::check(Device device) const {
  group.check(device, gradient, "gradient");
  check_vector(row_mean, group.matrices, Dtype::f64, "row_mean");
}

Cost FactoredMomentsArgs::cost() const {
  return {WorkKind::optimizer, 2 * bytes_of_elements(group, gradient.dtype()), 0};
}

void FactoredSizesArgs::check(Device device) const {
  group.check(device, gradient, "gradient");
  check_vector(weights, gradient.count(), gradient.dtype(), "weights");
  check_vector(row_mean, group.matrices, Dtype::f64, "row_mean");
  check_vector(sizes, 2 * group.matrices, Dtype::f64, "sizes");
}

Cost FactoredSizesArgs::cost() const {
  return {WorkKind::optimizer, 2 * bytes_of_elements(group, gradient.dtype()), 0};
}

void FactoredStepArgs::check(Device device) const {
  group.check(device, gradient, "gradient");
  check_vector(weights, gradient.count(), gradient.dtype(), "weights");
  check_vector(row_mean, group.matrices, Dtype::f64, "row_mean");
  check_vector(sizes, 2 * group.matrices, Dtype::f64, "sizes");
  if (m.given()) {
    check_vector(m, m.count(), gradient.dtype(), "m");
    check_offsets(group, m_at, group.count(), m, "m");
  }
  if (!low_precision.given()) return;
  LONGSTRIDE_CHECK(device == Device::cuda && bytes_of(low_precision.dtype()) == 2, "low_precision is {}",
                   name_of(low_precision.dtype()));
  check_vector(low_precision, weights.count(), low_precision.dtype(), "low_precision");
}

Cost FactoredStepArgs::cost() const {
  const double read = bytes_of_elements(group, gradient.dtype());
  return {WorkKind::optimizer,
          read * (m.given() ? 5 : 3) + (low_precision.given() ? bytes_of_elements(group, low_precision.dtype()) : 0),
          0};
}

namespace cpu {
namespace {

// One matrix of a group.
template <class T>
struct Matrix {
  const T* gradient;
  T *row_means, *column_means;
  std::int64_t rows, columns;
  T scale;  // factor of the gradient

  Matrix(const FactoredMatrices& group, const Tensor& flat, std::int64_t index, const OptimizerScalars& scalars)
      : gradient(flat.as<const T>() + group.at.at[index]),
        row_means(group.moments.as<T>() + group.rows_at.at[index]),
        column_means(group.moments.as<T>() + group.columns_at.at[index]),
        rows(group.rows),
        columns(group.columns),
        scale(static_cast<T>(scalars.clip_coefficient)) {}

  double square(std::int64_t row, std::int64_t column) const {
    const T g = scale * gradient[row * columns + column];
    return static_cast<double>(g) * static_cast<double>(g);
  }
  // u = g / sqrt(rows_i columns_j / row_mean); the quotient of the rows first, which is 1 for a vector.
  T update(std::int64_t row, std::int64_t column, T row_share) const {
    return scale * gradient[row * columns + column] / std::sqrt(row_share * column_means[column]);
  }
  T row_share(std::int64_t row, double row_mean) const {
    return static_cast<T>(static_cast<double>(row_means[row]) / row_mean);
  }
};

template <class T>
void follow_mean(T& moment, double mean, double decay) {
  moment = static_cast<T>(decay * static_cast<double>(moment) + (1 - decay) * mean);
}

template <class T>
void moments_of(const Matrix<T>& x, double decay, double epsilon, double& row_mean) {
  const std::int64_t rows = x.rows, columns = x.columns;
#pragma omp parallel for schedule(static) if (rows * columns > 16384)
  for (std::int64_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < columns; ++j) sum += x.square(i, j);
    follow_mean(x.row_means[i], sum / static_cast<double>(columns) + epsilon, decay);
  }
  constexpr std::int64_t block = 64;
#pragma omp parallel for schedule(static) if (rows * columns > 16384)
  for (std::int64_t begin = 0; begin < columns; begin += block) {
    const std::int64_t count = std::min(block, columns - begin);
    double sums[block] = {};
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < count; ++j) sums[j] += x.square(i, begin + j);
    for (std::int64_t j = 0; j < count; ++j)
      follow_mean(x.column_means[begin + j], sums[j] / static_cast<double>(rows) + epsilon, decay);
  }
  row_mean = 0;
  for (std::int64_t i = 0; i < rows; ++i) row_mean += static_cast<double>(x.row_means[i]);
  row_mean /= static_cast<double>(rows);
}

// sums (rows, 2): of the squares of u and of the weights, row by row.
template <class T>
void sizes_of(const Matrix<T>& x, const T* weights, double row_mean, double* sums, double* sizes) {
  const std::int64_t rows = x.rows, columns = x.columns;
#pragma omp parallel for schedule(static) if (rows * columns > 16384)
  for (std::int64_t i = 0; i < rows; ++i) {
    const T share = x.row_share(i, row_mean);
    double updates = 0, squares = 0;
    for (std::int64_t j = 0; j < columns; ++j) {
      const double u = static_cast<double>(x.update(i, j, share));
      const double w = static_cast<double>(weights[i * columns + j]);
      updates += u * u;
      squares += w * w;
    }
    sums[2 * i] = updates;
    sums[2 * i + 1] = squares;
  }
  double total[2] = {};
  for (std::int64_t i = 0; i < 2 * rows; ++i) total[i % 2] += sums[i];
  for (int k = 0; k < 2; ++k) sizes[k] = std::sqrt(total[k] / static_cast<double>(rows * columns));
}

template <class T>
void step_of(const Matrix<T>& x, T* weights, T* m, double row_mean, const double* sizes, const FactoredStepArgs& args) {
  const FactoredRates rates =
      factored_rates(*args.scalars, sizes, args.clip_threshold, args.scale_parameter, args.weight_decay);
  const T clip = static_cast<T>(rates.update), rate = static_cast<T>(rates.rate), shrink = static_cast<T>(rates.shrink);
  const T beta1 = static_cast<T>(args.beta1), rest = static_cast<T>(1 - args.beta1);
  const std::int64_t rows = x.rows, columns = x.columns;
#pragma omp parallel for schedule(static) if (rows * columns > 16384)
  for (std::int64_t i = 0; i < rows; ++i) {
    const T share = x.row_share(i, row_mean);
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::int64_t at = i * columns + j;
      T moved = rate * (clip * x.update(i, j, share));
      if (m != nullptr) moved = m[at] = beta1 * m[at] + rest * moved;
      weights[at] -= moved + shrink * weights[at];
    }
  }
}

}  // namespace

void factored_moments(const FactoredMomentsArgs& args, const Launch&) {
  if (args.scalars->finite == 0) return;
  const double decay = factored_decay(updates_until(*args.scalars, *args.step), args.decay_rate);
  with_float_type(args.gradient.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < args.group.matrices; ++i)
      moments_of(Matrix<T>(args.group, args.gradient, i, *args.scalars), decay, args.epsilon,
                 args.row_mean.as<double>()[i]);
  });
}

void factored_sizes(const FactoredSizesArgs& args, const Launch&) {
  if (args.scalars->finite == 0) return;
  with_float_type(args.gradient.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < args.group.matrices; ++i)
      sizes_of(Matrix<T>(args.group, args.gradient, i, *args.scalars), args.weights.as<const T>() + args.group.at.at[i],
               args.row_mean.as<const double>()[i], args.scratch.as<double>() + 2 * i * args.group.rows,
               args.sizes.as<double>() + 2 * i);
  });
}

void factored_step(const FactoredStepArgs& args, const Launch&) {
  if (args.scalars->finite == 0) return;
  with_float_type(args.gradient.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < args.group.matrices; ++i)
      step_of(Matrix<T>(args.group, args.gradient, i, *args.scalars), args.weights.as<T>() + args.group.at.at[i],
              args.m.given() ? args.m.as<T>() + args.m_at.at[i] : nullptr, args.row_mean.as<const double>()[i],
              args.sizes.as<const double>() + 2 * i, args);
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
