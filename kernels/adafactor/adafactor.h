// The passes of Adafactor (Shazeer and Stern 2018, Algorithms 4 and 5) over matrices of one shape. The second moments
// of a matrix are a mean for each row and one for each column; a vector is a matrix of one row, whose column means are
// the moments themselves. As in adam.h, the scalars are in device memory, and a step whose gradient is not finite
// changes nothing but scratch.
#pragma once
#include <algorithm>

#include "kernels/adam/adam.h"
#include "kernels/muon/muon.h"

namespace longstride::kernels {

// Where the matrices of a group and their moments are. All tensors are contiguous and of one type, f32 on a GPU.
struct FactoredMatrices {
  std::int64_t matrices = 0, rows = 0, columns = 0;
  MatrixOffsets at;  // each matrix in the flat gradient and weights
  Tensor moments;  // flat: the row means of a matrix, (rows), at rows_at and its column means, (columns), at columns_at
  MatrixOffsets rows_at, columns_at;
  std::int64_t count() const { return rows * columns; }  // elements per matrix

  void check(Device device, const Tensor& flat, const char* name) const;
};

// With t as in AdamArgs, g = clip_coefficient * gradient and b = 1 - t^-decay_rate:
//   rows_i = b rows_i + (1 - b) mean_j (g_ij^2 + epsilon),  columns_j = b columns_j + (1 - b) mean_i (g_ij^2 + epsilon)
// row_mean = mean_i rows_i
struct FactoredMomentsArgs {
  static constexpr std::int64_t chunk = 64;  // rows that a GPU adds up at a time for the means of columns
  static constexpr std::int64_t chunks(std::int64_t rows) { return (rows + chunk - 1) / chunk; }
  FactoredMatrices group;
  Tensor gradient;  // flat
  Tensor row_mean;  // (matrices) f64
  Tensor scratch = {};
  double decay_rate = 0.8, epsilon = 1e-30;
  const OptimizerScalars* scalars = nullptr;
  const std::int64_t* step = nullptr;

  void check(Device device) const;
  Cost cost() const;
  Tensor scratch_on(Device device) const {
    if (device == Device::cpu) return {};
    return {nullptr, Dtype::f64, {group.matrices, chunks(group.rows), group.columns}};
  }
};

// With u_ij = g_ij / sqrt(rows_i columns_j / row_mean):  sizes = the root mean squares of u and of the weights, summed
// in f64 in a fixed order.
struct FactoredSizesArgs {
  static constexpr int chunks = 64;  // per matrix, on a GPU; the CPU adds up rows
  FactoredMatrices group;
  Tensor gradient, weights;  // flat
  Tensor row_mean;           // (matrices) f64
  Tensor sizes;              // (matrices, 2) f64
  Tensor scratch = {};
  const OptimizerScalars* scalars = nullptr;

  void check(Device device) const;
  Cost cost() const;
  Tensor scratch_on(Device device) const {
    return {nullptr, Dtype::f64, {group.matrices, device == Device::cpu ? group.rows : chunks, 2}};
  }
};

// With u as above, U = u / max(1, RMS(u) / clip_threshold) and D = lr max(1e-3, RMS(w)) U, or lr U without
// scale_parameter; if `m` is given, m = beta1 m + (1 - beta1) D, which then replaces D:
//   w -= D + lr weight_decay w,  low_precision = w, rounded
struct FactoredStepArgs {
  FactoredMatrices group;
  Tensor gradient, weights;   // flat
  Tensor low_precision = {};  // GPU: flat, as in AdamArgs; may be absent
  Tensor m = {};              // flat; absent: no momentum
  MatrixOffsets m_at;
  Tensor row_mean;  // (matrices) f64
  Tensor sizes;     // (matrices, 2) f64
  double clip_threshold = 1, beta1 = 0, weight_decay = 0;
  bool scale_parameter = true;
  const OptimizerScalars* scalars = nullptr;

  void check(Device device) const;
  Cost cost() const;
};

// 1 - t^-decay_rate: 0 at the first update, which needs no correction of the bias.
LONGSTRIDE_HOST_DEVICE inline double factored_decay(std::int64_t t, double decay_rate) {
  return 1 - std::pow(static_cast<double>(t), -decay_rate);
}

// The factors of the update and of the weights in one step of one matrix, on either device.
struct FactoredRates {
  double update;  // factor of U, without the learning rate
  double rate, shrink;
};

LONGSTRIDE_HOST_DEVICE inline FactoredRates factored_rates(const OptimizerScalars& scalars, const double* sizes,
                                                           double clip_threshold, bool scale_parameter,
                                                           double weight_decay) {
  constexpr double least_size = 1e-3;  // epsilon_2: weights that are 0 must be able to leave it
  const double over = sizes[0] / clip_threshold, size = sizes[1] > least_size ? sizes[1] : least_size;
  const double lr = scalars.learning_rate;
  return {over > 1 ? 1 / over : 1.0, scale_parameter ? lr * size : lr, lr * weight_decay};
}

LONGSTRIDE_OP(factored_moments, FactoredMomentsArgs)
LONGSTRIDE_OP(factored_sizes, FactoredSizesArgs)
LONGSTRIDE_OP(factored_step, FactoredStepArgs)

}  // namespace longstride::kernels
