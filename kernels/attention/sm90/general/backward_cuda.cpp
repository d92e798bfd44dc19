// Attention backward on Hopper: for each pass of the heads, one launch for dQ and one per part for dK and dV.
#include <algorithm>
#include <cstdint>

#include "kernels/attention/bounds_from_keys.h"
#include "kernels/attention/joined_part.h"
#include "kernels/attention/sm90/attention_sm90.h"
#include "kernels/attention/sm90/general/backward_problem.h"
#include "kernels/attention/term/label_products.h"
#include "kernels/base/add_partials.cuh"
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

// The table's gradient, from the sums of all shares.
void finish_labels(const AttentionBackwardArgs& args, const LabelMatrices& of, std::int32_t shares,
                   const Launch& launch) {
  if (!args.dtable.given()) return;
  if (shares > 1) add_partials({of.sums + of.elements(), shares - 1, of.elements(), of.sums}, launch);
  with_gpu_type(args.q.dtype(),
                [&](auto zero) { portable::add_table_gradient<decltype(zero)>(of, args.dtable.as<float>(), launch); });
}

// The launches of both sides, whose gradients may be sums over shares.
class Sides {
 public:
  Sides(const AttentionBackwardArgs& args, const AttentionChoice& choice, const LabelsView& labels, std::byte* scratch)
      : args_(args), choice_(choice), labels_{labels} {
    labels_.parts = reinterpret_cast<float*>(scratch + (choice.sums_bytes - choice.share_bytes));
    is_given_ = args.labels.given() || labels.queries != labels.keys;
  }

  void queries(BackwardProblemInPieces& problem, const Launch& launch) {
    problem.key_sized_gradient = gradient_of(args_.dq);
    share(problem, choice_.query_shares, args_.k.size(1));
    launch_backward_queries(args_, problem, is_given_ ? &labels_ : nullptr, launch);
    if (choice_.query_shares > 1) sum_shares(labels_.parts, choice_.query_shares, args_.dq, false, launch);
  }
  // One part's.
  void keys(BackwardProblemInPieces& problem, const Launch& launch) {
    const Part& part = problem.geometry.pass[0].part[problem.part];
    const std::int32_t shares = may_share_queries(*args_.plan, part) ? choice_.key_shares : 1;
    labels_.key_sized_part = shares * args_.q.size(0) * args_.q.size(2) * part.keys.length * 64;
    share(problem, shares, args_.q.size(1));
    launch_backward_keys(args_, problem, is_given_ || shares > 1 ? &labels_ : nullptr, launch);
    if (shares == 1) return;
    const auto sum = [&](const float* parts, const Tensor& gradient) {
      sum_shares(parts, shares, gradient.slice(1, 0, part.keys.length), problem.adds[0][problem.part], launch);
    };
    sum(labels_.parts, args_.dk);
    sum(labels_.parts + labels_.key_sized_part, args_.dv);
  }

 private:
  void share(BackwardProblemInPieces& problem, std::int32_t shares, std::int64_t others) {
    problem.batch = static_cast<std::int32_t>(shares * args_.q.size(0));
    labels_.view.shares = Shares(shares, args_.q.size(0), others);
  }

  const AttentionBackwardArgs& args_;
  const AttentionChoice& choice_;
  LabelsOfLaunch labels_;
  bool is_given_ = false;
};

}  // namespace

void attention_backward(const AttentionBackwardArgs& args, const AttentionChoice& choice, const float* delta,
                        std::byte* scratch, const Launch& launch) {
  const LabelMatrices matrices(args.labels, args.q, args.scale, reinterpret_cast<float*>(scratch), choice.query_shares);
  if (args.labels.given()) begin_labels(matrices, args.q.dtype(), launch);
  const bool seen_from_keys = !args.bounds.given() || args.bounds.documents;
  const BoundsView bounds(args.bounds),
      of_keys =
          seen_from_keys ? bounds : bounds_from_keys(args.bounds, args.k.size(1), scratch + choice.label_bytes, launch);
  Sides sides(args, choice, LabelsView(args.labels, matrices, args.k.size(1)), scratch);
  for (int number = 0; number < passes_in(*args.plan); ++number) {
    BackwardProblemInPieces problem = {};
    geometry_of(*args.plan, number, problem.geometry);
    problem.in_pieces = needs_pieces(problem.geometry);
    problem.heads_per_key = Divisor(static_cast<std::int32_t>(args.q.size(2) / args.k.size(2)));
    problem.scale = static_cast<float>(args.scale);
    problem.lse = args.lse.as<float>();
    problem.delta = delta;
    for (int p = 0; p < problem.geometry.passes; ++p) problem.adds[p][0] = number > 0;
    problem.bounds = bounds;
    sides.queries(problem, launch);
    problem.key_sized_gradient = gradient_of(args.dk);
    problem.bounds = of_keys;
    problem.value_sized_gradient = gradient_of(args.dv);
    join_parts(problem, number == 0);
    int parts = 0;
    for (int p = 0; p < problem.geometry.passes; ++p) parts = std::max(parts, problem.geometry.pass[p].parts);
    for (problem.part = 0; problem.part < parts; ++problem.part) sides.keys(problem, launch);
  }
  finish_labels(args, matrices, choice.query_shares, launch);
}

}  // namespace longstride::kernels::cuda::sm90
