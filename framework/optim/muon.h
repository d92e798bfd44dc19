// Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/): the update of a layer's matrix is its
// Nesterov momentum, orthogonalised and scaled as in Liu et al. 2025 (arXiv 2502.16982), so that it takes Adam's
// learning rate and weight decay:
//   g = clip_coefficient gradient,  M = 0.95 M + 0.05 g,  X = 0.95 M + 0.05 g,  X = X / (|X|_F + 1e-7)
//   five times  X = (c0 I + c1 X X^T + c2 (X X^T)^2) X,   c0 = 3.4445, c1 = -4.7750, c2 = 2.0315
//   W -= lr (0.2 sqrt(max(rows, columns)) X + weight_decay W)
#pragma once
#include <cstdint>
#include <vector>

#include "framework/core/context.h"
#include "framework/core/parameters.h"
#include "kernels/muon/muon.h"

namespace longstride {

// A matrix in the flat buffers, (rows, columns).
struct HiddenMatrix {
  std::int64_t begin = 0, rows = 0, columns = 0;
  std::int64_t padded_count = 0;  // elements up to the next matrix or parameter
  std::int64_t count() const { return rows * columns; }
};

// The matrices of the layers, in flat order. Matrices stacked in one parameter are listed separately. The parameters
// must be laid out.
std::vector<HiddenMatrix> hidden_matrices(const ParameterSet& parameters);

// Matrices of one shape, updated together because the products of a single one leave most of a GPU idle.
struct MatrixGroup {
  std::int64_t matrices = 0, rows = 0, columns = 0;
  kernels::MatrixOffsets at, m_at;                       // in the flat buffers, and in m
  std::int64_t count() const { return rows * columns; }  // elements of one matrix
};

// Adds a matrix, whose part of m begins at m_at, to the group of its shape.
void add_matrix(std::vector<MatrixGroup>& groups, const HiddenMatrix& matrix, std::int64_t m_at);

// The flat buffers that hold the matrices.
struct MuonTensors {
  Tensor weights, gradient, m;  // all of one type, f32 on a GPU
  Tensor low_precision;         // ctx.compute; optional, and absent on the CPU
};

// One step for each matrix of a group. Products are computed in ctx.compute on a GPU and in the weights' type on the
// CPU; their workspace is scratch. If scalars->finite is 0, only scratch is written.
void muon(Context& ctx, const MatrixGroup& group, const MuonTensors& tensors, double weight_decay,
          const kernels::OptimizerScalars* scalars);

}  // namespace longstride
