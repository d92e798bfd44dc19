// Adafactor (Shazeer and Stern 2018, https://arxiv.org/abs/1804.04235): Adam's second moments of a matrix are replaced
// by the means of its rows and of its columns. With t = step + 1, g = clip_coefficient gradient and b = 1 -
// t^-decay_rate
//   R = b R + (1 - b) mean over columns (g^2 + epsilon),  C = b C + (1 - b) mean over rows (g^2 + epsilon)
//   U = g / sqrt(R C^T / mean R),  U = U / max(1, RMS(U) / clip_threshold)
//   D = lr max(1e-3, RMS(W)) U, or lr U without scale_parameter;  with beta1 > 0, M = beta1 M + (1 - beta1) D and D = M
//   W -= D + lr weight_decay W
// A vector is a matrix of one row, and a parameter of more than two dimensions one of as many rows as the first has.
// Matrices stacked in one parameter are separate.
#pragma once
#include <cstdint>
#include <vector>

#include "framework/core/context.h"
#include "framework/core/parameters.h"
#include "kernels/adafactor/adafactor.h"

namespace longstride {

// A matrix in the flat buffers, and its moments in a flat buffer of their own.
struct FactoredMatrix {
  std::int64_t begin = 0, rows = 0, columns = 0;
  std::int64_t rows_at = 0, columns_at = 0;
};

// The layout of the moments, laid out: for each parameter of (rows, columns), "r.NAME" of (rows) and "c.NAME" of
// (columns of each matrix stacked in it). These are the names of a checkpoint's tensors.
ParameterSet factor_layout(const ParameterSet& parameters);
// Every matrix and vector; `parameters` must be laid out.
std::vector<FactoredMatrix> factored_matrices(const ParameterSet& parameters);

struct AdafactorSettings {
  double epsilon = 1e-30, decay_rate = 0.8, clip_threshold = 1;
  double beta1 = 0;  // decay of a momentum of the update, the learning rate included; 0: none
  double weight_decay = 0;
  bool scale_parameter = true;  // multiplies the learning rate of a matrix by max(1e-3, RMS(W))
};

// The flat buffers that hold the matrices, of one type, f32 on a GPU.
struct AdafactorTensors {
  Tensor weights, gradient, factors;
  Tensor m;              // as long as the weights; absent without momentum
  Tensor low_precision;  // optional, and absent on the CPU
};

// Matrices of one shape, updated together.
struct FactoredGroup {
  kernels::FactoredMatrices matrices;
  bool decays = false;
};

std::vector<FactoredGroup> grouped(const std::vector<FactoredMatrix>& matrices, std::int64_t decayed_size);

// One step for each matrix of a group. If scalars->finite is 0, only scratch is written.
void adafactor(Context& ctx, const FactoredGroup& group, const AdafactorTensors& tensors,
               const AdafactorSettings& settings, const kernels::OptimizerScalars* scalars);

}  // namespace longstride
