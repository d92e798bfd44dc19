#include "framework/optim/adafactor.h"

#include <algorithm>

#include "framework/ops/run.h"
#include "kernels/base/tensor_checks.h"

namespace longstride {
namespace {

constexpr const char *row_prefix = "r.", *column_prefix = "c.";

std::int64_t all_rows(const Parameter& p) { return p.shape.rank < 2 ? 1 : p.shape[0]; }

// The row counts of the matrices of a parameter; a vector has one row.
std::vector<std::int64_t> rows_of(const Parameter& p) {
  if (!p.stacked.empty()) return p.stacked;
  return {all_rows(p)};
}

std::int64_t columns_of(const Parameter& p) { return p.shape.count() / all_rows(p); }

}  // namespace

ParameterSet factor_layout(const ParameterSet& parameters) {
  ParameterSet layout;
  for (const Parameter& p : parameters.all()) {
    layout.add(row_prefix + p.name, {all_rows(p)}, {});
    layout.add(column_prefix + p.name, {static_cast<std::int64_t>(rows_of(p).size()) * columns_of(p)}, {});
  }
  layout.lay_out();
  return layout;
}

std::vector<FactoredMatrix> factored_matrices(const ParameterSet& parameters) {
  const ParameterSet layout = factor_layout(parameters);
  std::vector<FactoredMatrix> matrices;
  auto factor = layout.all().begin();
  for (const Parameter& p : parameters.all()) {
    std::int64_t begin = p.offset, rows_at = (factor++)->offset, columns_at = (factor++)->offset;
    for (const std::int64_t rows : rows_of(p)) {
      matrices.push_back({begin, rows, columns_of(p), rows_at, columns_at});
      begin += rows * columns_of(p);
      rows_at += rows;
      columns_at += columns_of(p);
    }
    LONGSTRIDE_CHECK(begin - p.offset == p.shape.count(), "the matrices of {} do not fill it", p.name);
  }
  return matrices;
}

std::vector<FactoredGroup> grouped(const std::vector<FactoredMatrix>& matrices, std::int64_t decayed_size) {
  std::vector<FactoredGroup> groups;
  for (const FactoredMatrix& m : matrices) {
    const bool decays = m.begin < decayed_size;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const FactoredGroup& g) {
      return g.decays == decays && g.matrices.rows == m.rows && g.matrices.columns == m.columns &&
             g.matrices.matrices < kernels::MatrixOffsets::most;
    });
    if (group == groups.end()) {
      group = groups.insert(groups.end(), FactoredGroup{});
      group->matrices.rows = m.rows;
      group->matrices.columns = m.columns;
      group->decays = decays;
    }
    kernels::FactoredMatrices& all = group->matrices;
    all.at.at[all.matrices] = m.begin;
    all.rows_at.at[all.matrices] = m.rows_at;
    all.columns_at.at[all.matrices] = m.columns_at;
    ++all.matrices;
  }
  return groups;
}

void adafactor(Context& ctx, const FactoredGroup& group, const AdafactorTensors& t, const AdafactorSettings& settings,
               const kernels::OptimizerScalars* scalars) {
  kernels::FactoredMatrices matrices = group.matrices;
  matrices.moments = t.factors;
  Scratch scratch(ctx);
  const Tensor row_mean = scratch.tensor({matrices.matrices}, Dtype::f64);
  const Tensor sizes = scratch.tensor({matrices.matrices, 2}, Dtype::f64);
  kernels::FactoredMomentsArgs moments{.group = matrices, .gradient = t.gradient, .row_mean = row_mean};
  moments.decay_rate = settings.decay_rate;
  moments.epsilon = settings.epsilon;
  moments.scalars = scalars;
  moments.step = ctx.step;
  ops::run(ctx, moments);
  kernels::FactoredSizesArgs measured{
      .group = matrices, .gradient = t.gradient, .weights = t.weights, .row_mean = row_mean, .sizes = sizes};
  measured.scalars = scalars;
  ops::run(ctx, measured);
  kernels::FactoredStepArgs step{.group = matrices,
                                 .gradient = t.gradient,
                                 .weights = t.weights,
                                 .low_precision = t.low_precision,
                                 .m = t.m,
                                 .m_at = matrices.at,
                                 .row_mean = row_mean,
                                 .sizes = sizes};
  step.clip_threshold = settings.clip_threshold;
  step.beta1 = settings.beta1;
  step.weight_decay = group.decays ? settings.weight_decay : 0;
  step.scale_parameter = settings.scale_parameter;
  step.scalars = scalars;
  ops::run(ctx, step);
}

}  // namespace longstride
