// Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/): the update of a layer's matrix is its
// Nesterov momentum, orthogonalised, in the size that Liu et al. 2025 (arXiv 2502.16982) give it, so that the learning
// rate and the weight decay are Adam's:
//   g = clip_coefficient gradient,  M = 0.95 M + 0.05 g,  X = 0.95 M + 0.05 g,  X = X / (|X|_F + 1e-7)
//   five times  X = (c0 I + c1 X X^T + c2 (X X^T)^2) X
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
  std::int64_t padded_count = 0;  // of elements, up to the next matrix or parameter
  std::int64_t count() const { return rows * columns; }
};

// The matrices of the layers, in flat order; of those that are stacked in one parameter each by itself. The parameters
// are laid out.
std::vector<HiddenMatrix> hidden_matrices(const ParameterSet& parameters);

// Matrices of one shape that take a step together: a product of one alone leaves most of a GPU idle.
struct MatrixGroup {
  std::int64_t matrices = 0, rows = 0, columns = 0;
  kernels::Places at, m_at;                              // in the flat buffers, and in m
  std::int64_t count() const { return rows * columns; }  // of one matrix
};

// Puts a matrix, whose part of m begins at m_at, to those of its shape.
void add_matrix(std::vector<MatrixGroup>& groups, const HiddenMatrix& matrix, std::int64_t m_at);

// The flat buffers that the matrices lie in.
struct MuonTensors {
  Tensor weights, gradient, m;  // of one type, f32 on a GPU
  Tensor low;                   // ctx.compute; may be absent, and is on the CPU
};

// One step of each of a group's matrices. Products are computed in ctx.compute on a GPU, on the CPU in the weights'
// type; their workspace is scratch. When scalars->finite is 0, nothing is written but scratch.
void muon(Context& ctx, const MatrixGroup& group, const MuonTensors& tensors, double weight_decay,
          const kernels::OptimizerScalars* scalars);

}  // namespace longstride
