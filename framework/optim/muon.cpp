#include "framework/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/ops/dispatch.h"
#include "kernels/gemm/gemm.h"

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

Dtype product_type(const Context& ctx, const MuonTensors& t) {
  return ctx.device == Device::cpu ? t.m.dtype() : ctx.compute;
}

// Each of a stack of matrices as a row.
View as_rows(View v) {
  v.rank = 2;
  v.size[1] *= v.size[2];
  v.stride[1] = 1;
  return v;
}

// x = the momenta, moved on by the gradients, each over its Frobenius norm.
void normalised_momenta(Context& ctx, const MatrixGroup& group, const MuonTensors& t,
                        const kernels::OptimizerScalars* scalars, const Tensor& x) {
  Scratch scratch(ctx);
  const Tensor update = scratch.tensor({group.matrices, group.count()}, t.m.dtype()),
               partials =
                   scratch.tensor({group.matrices, kernels::NormaliseArgs::partials_of(group.count())}, Dtype::f64);
  if (ctx.planning()) return;
  ops::launch(ctx, kernels::cpu::nesterov, kernels::cuda::nesterov,
              {t.gradient.view(), group.at, t.m.view(), group.m_at, update.view(), momentum, scalars});
  ops::launch(ctx, kernels::cpu::normalise, kernels::cuda::normalise,
              {update.view(), partials.view(), as_rows(x.view()), epsilon});
}

void check(const Context& ctx, const MatrixGroup& group, const MuonTensors& t) {
  LONGSTRIDE_CHECK(group.matrices > 0 && group.matrices <= kernels::Places::most, "{} matrices", group.matrices);
  ops::check_vector(t.gradient, t.weights.count(), t.m.dtype(), "gradient");
  ops::check_vector(t.weights, t.weights.count(), t.m.dtype(), "weights");
  if (t.low.given()) ops::check_vector(t.low, t.weights.count(), product_type(ctx, t), "low");
  for (std::int64_t i = 0; i < group.matrices; ++i)
    LONGSTRIDE_CHECK(group.at.at[i] >= 0 && group.at.at[i] + group.count() <= t.weights.count() &&
                         group.m_at.at[i] >= 0 && group.m_at.at[i] + group.count() <= t.m.count(),
                     "a matrix of {} at {} of {} and {} of {}", group.count(), group.at.at[i], t.weights.count(),
                     group.m_at.at[i], t.m.count());
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

void add_matrix(std::vector<MatrixGroup>& groups, const HiddenMatrix& matrix, std::int64_t m_at) {
  auto group = std::find_if(groups.begin(), groups.end(), [&](const MatrixGroup& g) {
    return g.rows == matrix.rows && g.columns == matrix.columns && g.matrices < kernels::Places::most;
  });
  if (group == groups.end()) group = groups.insert(groups.end(), {0, matrix.rows, matrix.columns, {}, {}});
  group->at.at[group->matrices] = matrix.begin;
  group->m_at.at[group->matrices] = m_at;
  ++group->matrices;
}

void muon(Context& ctx, const MatrixGroup& group, const MuonTensors& t, double weight_decay,
          const kernels::OptimizerScalars* scalars) {
  check(ctx, group, t);
  const Dtype type = product_type(ctx, t);
  const bool tall = group.rows > group.columns;  // then x^T x is the smaller product
  const std::int64_t n = std::min(group.rows, group.columns);
  Scratch scratch(ctx);
  Tensor x = scratch.tensor({group.matrices, group.rows, group.columns}, type), next = scratch.like(x);
  const Tensor gram = scratch.tensor({group.matrices, n, n}, type), polynomial = scratch.like(gram);
  normalised_momenta(ctx, group, t, scalars, x);
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
  if (t.low.given()) args.low = t.low.view();
  args.at = group.at;
  args.update = as_rows(x.view());
  args.scale = size * std::sqrt(static_cast<double>(std::max(group.rows, group.columns)));
  args.weight_decay = weight_decay;
  args.scalars = scalars;
  ops::launch(ctx, kernels::cpu::orthogonal_step, kernels::cuda::orthogonal_step, args);
}

}  // namespace longstride
