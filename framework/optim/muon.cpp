#include "framework/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/ops/run.h"
#include "kernels/base/tensor_checks.h"
#include "kernels/gemm/gemm.h"

namespace longstride {
namespace {

constexpr double momentum = 0.95, epsilon = 1e-7, size = 0.2;
constexpr int iterations = 5;
constexpr double c0 = 3.4445, c1 = -4.7750, c2 = 2.0315;  // Jordan et al.: steepest at 0, and near 1 throughout (0, 1]

void product(Context& ctx, const Tensor& a, const Tensor& b, const Tensor& c) {
  ops::run(ctx, kernels::GemmArgs{.a = a, .b = b, .c = c});
}

Dtype product_type(const Context& ctx, const MuonTensors& t) {
  return ctx.device == Device::cpu ? t.m.dtype() : ctx.compute;
}

// Reshapes each matrix of a stack to a row.
Tensor as_rows(const Tensor& stack) { return stack.reshape({stack.size(0), stack.size(1) * stack.size(2)}); }

// x = the momenta, updated with the gradients, each divided by its Frobenius norm.
void normalised_momenta(Context& ctx, const MatrixGroup& group, const MuonTensors& t,
                        const kernels::OptimizerScalars* scalars, const Tensor& x) {
  Scratch scratch(ctx);
  const Tensor update = scratch.tensor({group.matrices, group.count()}, t.m.dtype());
  ops::run(ctx, kernels::NesterovArgs{t.gradient, group.at, t.m, group.m_at, update, momentum, scalars});
  ops::run(ctx, kernels::NormaliseArgs{.x = update, .y = as_rows(x), .epsilon = epsilon});
}

}  // namespace

std::vector<HiddenMatrix> hidden_matrices(const ParameterSet& parameters) {
  std::vector<HiddenMatrix> matrices;
  for (const Parameter& p : parameters.all()) {
    std::int64_t begin = p.offset;
    for (const std::int64_t rows : p.stacked) {
      matrices.push_back({begin, rows, p.shape[1], rows * p.shape[1]});
      begin += rows * p.shape[1];
    }
    if (p.stacked.empty()) continue;
    constexpr std::int64_t unit = ParameterSet::alignment;
    LONGSTRIDE_CHECK(begin - p.offset == p.shape.count(), "the matrices stacked in {} do not fill it", p.name);
    matrices.back().padded_count += (unit - (begin - p.offset) % unit) % unit;
  }
  return matrices;
}

void add_matrix(std::vector<MatrixGroup>& groups, const HiddenMatrix& matrix, std::int64_t m_at) {
  auto group = std::find_if(groups.begin(), groups.end(), [&](const MatrixGroup& g) {
    return g.rows == matrix.rows && g.columns == matrix.columns && g.matrices < kernels::MatrixOffsets::most;
  });
  if (group == groups.end()) group = groups.insert(groups.end(), {0, matrix.rows, matrix.columns, {}, {}});
  group->at.at[group->matrices] = matrix.begin;
  group->m_at.at[group->matrices] = m_at;
  ++group->matrices;
}

void muon(Context& ctx, const MatrixGroup& group, const MuonTensors& t, double weight_decay,
          const kernels::OptimizerScalars* scalars) {
  const Dtype type = product_type(ctx, t);
  const bool tall = group.rows > group.columns;  // then x^T x is the smaller product
  const std::int64_t n = std::min(group.rows, group.columns);
  Scratch scratch(ctx);
  Tensor x = scratch.tensor({group.matrices, group.rows, group.columns}, type), next = scratch.like(x);
  const Tensor gram = scratch.tensor({group.matrices, n, n}, type), polynomial = scratch.like(gram);
  normalised_momenta(ctx, group, t, scalars, x);
  for (int i = 0; i < iterations; ++i) {
    const Tensor as_is = x, turned = x.transposed();
    product(ctx, tall ? turned : as_is, tall ? as_is : turned, gram);
    product(ctx, gram, gram, polynomial);
    ops::run(ctx, kernels::PolynomialArgs{gram, polynomial, c0, c1, c2});
    product(ctx, tall ? as_is : polynomial, tall ? polynomial : as_is, next);
    std::swap(x, next);
  }
  kernels::OrthogonalStepArgs args;
  args.weights = t.weights;
  if (t.low_precision.given()) args.low_precision = t.low_precision;
  args.at = group.at;
  args.update = as_rows(x);
  args.scale = size * std::sqrt(static_cast<double>(std::max(group.rows, group.columns)));
  args.weight_decay = weight_decay;
  args.scalars = scalars;
  ops::run(ctx, args);
}

}  // namespace longstride
