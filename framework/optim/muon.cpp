#include "framework/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/ops/basic.h"
#include "framework/ops/dispatch.h"
#include "kernels/gemm.h"

namespace longstride {
namespace {

using kernels::View;

constexpr double momentum = 0.95, epsilon = 1e-7, size = 0.2;
constexpr int iterations = 5;
constexpr double c0 = 3.4445, c1 = -4.7750, c2 = 2.0315;  // Jordan et al.: steepest at 0, and near 1 all over (0, 1]

void product(Context& ctx, const View& a, const View& b, const Tensor& c) {
  if (ctx.planning()) return;
  kernels::GemmArgs args;
  args.a = a;
  args.b = b;
  args.c = c.view();
  (ctx.device == Device::cpu ? kernels::cpu::gemm : kernels::cuda::gemm)(args, ctx.launch);
}

// x = the momentum, moved on by the gradient, over its Frobenius norm.
void normalised_momentum(Context& ctx, const MuonTensors& t, const kernels::OptimizerScalars* scalars,
                         const Tensor& x) {
  Scratch scratch(ctx);
  const Tensor update = scratch.like(t.m), squares = scratch.tensor({1}, Dtype::f64);
  if (!ctx.planning())
    ops::launch(ctx, kernels::cpu::nesterov, kernels::cuda::nesterov,
                {t.gradient.view(), t.m.view(), update.view(), momentum, scalars});
  ops::fill_zero(ctx, squares);
  ops::sum_of_squares(ctx, update, squares);
  if (!ctx.planning())
    ops::launch(ctx, kernels::cpu::normalise, kernels::cuda::normalise,
                {update.view(), squares.view(), x.view(), epsilon});
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
    LONGSTRIDE_CHECK(begin - p.offset == p.shape.count(), "{} is not what is stacked in it", p.name);
    matrices.back().padded_count += (unit - (begin - p.offset) % unit) % unit;
  }
  return matrices;
}

void muon(Context& ctx, const HiddenMatrix& matrix, const MuonTensors& t, double weight_decay,
          const kernels::OptimizerScalars* scalars) {
  const auto [rows, columns] = std::pair(matrix.rows, matrix.columns);
  for (const Tensor& flat : {t.weights, t.gradient, t.m})
    ops::check_vector(flat, matrix.count(), t.m.dtype(), "a tensor of Muon");
  const Dtype type = ctx.device == Device::cpu ? t.m.dtype() : ctx.compute;
  if (t.low.given()) ops::check_vector(t.low, matrix.count(), type, "low");
  const bool tall = rows > columns;  // then x^T x is the smaller product
  const std::int64_t n = std::min(rows, columns);
  Scratch scratch(ctx);
  Tensor x = scratch.tensor({rows, columns}, type), next = scratch.like(x);
  const Tensor gram = scratch.tensor({n, n}, type), polynomial = scratch.like(gram);
  normalised_momentum(ctx, t, scalars, x);
  for (int i = 0; i < iterations; ++i) {
    const View as_is = x.view(), turned = ops::transposed(x.view());
    product(ctx, tall ? turned : as_is, tall ? as_is : turned, gram);
    product(ctx, gram.view(), gram.view(), polynomial);
    if (!ctx.planning())
      ops::launch(ctx, kernels::cpu::polynomial, kernels::cuda::polynomial,
                  {gram.view(), polynomial.view(), c0, c1, c2});
    product(ctx, tall ? as_is : polynomial.view(), tall ? polynomial.view() : as_is, next);
    std::swap(x, next);
  }
  if (ctx.planning()) return;
  kernels::OrthogonalStepArgs args;
  args.weights = t.weights.view();
  args.update = x.view();
  if (t.low.given()) args.low = t.low.view();
  args.scale = size * std::sqrt(static_cast<double>(std::max(rows, columns)));
  args.weight_decay = weight_decay;
  args.scalars = scalars;
  ops::launch(ctx, kernels::cpu::orthogonal_step, kernels::cuda::orthogonal_step, args);
}

}  // namespace longstride
