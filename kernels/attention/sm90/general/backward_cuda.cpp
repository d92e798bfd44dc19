// Attention backward on Hopper: for each pass of the heads, one launch for dQ and one per part for dK and dV.
#include <algorithm>
#include <cstdint>

#include "kernels/attention/bounds_from_keys.h"
#include "kernels/attention/joined_part.h"
#include "kernels/attention/sm90/attention_sm90.h"
#include "kernels/attention/sm90/general/backward_problem.h"
#include "kernels/attention/term/label_products.h"
#include "kernels/base/cuda_types.cuh"

namespace longstride::kernels::cuda::sm90 {

namespace {

Gradient gradient_of(const Tensor& view) {
  return {view.data(), {view.stride(0), view.stride(1), view.stride(2)}, static_cast<std::int32_t>(view.size(3))};
}

// For dK and dV: parts joined with the queries of the window before them, where possible. Boxes do not reach the
// summary rows of an incomplete period, but these have no queries except the window's, or tiles are read in pieces.
void join_parts(BackwardProblemInPieces& problem, bool first_pass) {
  Geometry& geometry = problem.geometry;
  for (int p = 0; p < geometry.passes; ++p) {
    PassGeometry& pass = geometry.pass[p];
    problem.adds[p][0] = !first_pass;
    for (int i = 1; i < pass.parts; ++i) {
      Part& part = pass.part[i];
      problem.adds[p][i] = !first_pass || !continues(part, pass.part[0]);
      if (problem.adds[p][i]) continue;
      part = joined(part, pass.part[0]);
      if (part.keys.run > 1 && !problem.in_pieces)
        part.keys.length = std::min(part.keys.length, geometry.n / part.keys.period * part.keys.run);
    }
  }
}

void begin_labels(const LabelMatrices& of, Dtype dtype, const Launch& launch) {
  with_gpu_type(dtype, [&](auto zero) { portable::label_products<decltype(zero)>(of, launch); });
  portable::clear_label_sums(of, launch);
}

}  // namespace

void attention_backward(const AttentionBackwardArgs& args, const float* delta, float* by_label, void* scratch,
                        const Launch& launch) {
  const LabelMatrices matrices(args.labels, args.q, args.scale, by_label);
  const LabelsView labels(args.labels, matrices, args.k.size(1));
  const LabelsView* const of_labels = args.labels.given() || labels.queries != labels.keys ? &labels : nullptr;
  if (args.labels.given()) begin_labels(matrices, args.q.dtype(), launch);
  const bool seen_from_keys = !args.bounds.given() || args.bounds.documents;
  const BoundsView bounds(args.bounds),
      of_keys = seen_from_keys ? bounds : bounds_from_keys(args.bounds, args.k.size(1), scratch, launch);
  for (int number = 0; number < passes_in(*args.plan); ++number) {
    BackwardProblemInPieces problem = {};
    geometry_of(*args.plan, number, problem.geometry);
    problem.in_pieces = needs_pieces(problem.geometry);
    problem.batch = static_cast<std::int32_t>(args.q.size(0));
    problem.heads_per_key = Divisor(static_cast<std::int32_t>(args.q.size(2) / args.k.size(2)));
    problem.scale = static_cast<float>(args.scale);
    problem.lse = args.lse.as<float>();
    problem.delta = delta;
    for (int p = 0; p < problem.geometry.passes; ++p) problem.adds[p][0] = number > 0;
    problem.key_sized_gradient = gradient_of(args.dq);
    problem.bounds = bounds;
    launch_backward_queries(args, problem, of_labels, launch);
    problem.key_sized_gradient = gradient_of(args.dk);
    problem.bounds = of_keys;
    problem.value_sized_gradient = gradient_of(args.dv);
    join_parts(problem, number == 0);
    int parts = 0;
    for (int p = 0; p < problem.geometry.passes; ++p) parts = std::max(parts, problem.geometry.pass[p].parts);
    for (problem.part = 0; problem.part < parts; ++problem.part) launch_backward_keys(args, problem, of_labels, launch);
  }
  if (args.dtable.given())
    with_gpu_type(args.q.dtype(), [&](auto zero) {
      portable::add_table_gradient<decltype(zero)>(matrices, args.dtable.as<float>(), launch);
    });
}

}  // namespace longstride::kernels::cuda::sm90
