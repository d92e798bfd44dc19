// Global rows: a second attention of the first rows to all, whose output takes the place of theirs. Added rows are no
// queries of the first attention (pieces.cpp).
#include "framework/mixers/attention/mixer.h"
#include "framework/ops/basic.h"
#include "framework/ops/run.h"
#include "kernels/attention/attention.h"
#include "kernels/copy_rows/copy_rows.h"

namespace longstride {
namespace {

// The first rows of a sequence: contiguous, unlike those of several.
Tensor first_rows(const Tensor& x, std::int64_t sequence, std::int64_t rows) {
  const std::int64_t first = sequence * x.size(1);
  return x.reshape({x.size(0) * x.size(1), x.size(2)}).slice(0, first, first + rows);
}

}  // namespace

AttentionMixer::GlobalInput AttentionMixer::global_input(const QkvHeads& own, const Tensor& rows, const Tensor& query,
                                                         const Tensor& key_value) const {
  if (!config_.global.given()) return {};
  if (!rows.given()) return {{own.q.slice(1, 0, global_rows(own.q.size(1))), own.k, own.v}, {}, {}, {}};
  const std::int64_t keys = config_.key_heads * config_.key_size;
  return {{query.split_last(config_.heads, config_.key_size),
           key_value.slice(-1, 0, keys).split_last(config_.key_heads, config_.key_size),
           key_value.slice(-1, keys, key_value.size(2)).split_last(config_.key_heads, config_.value_size)},
          rows,
          query,
          key_value};
}

AttentionMixer::GlobalInput AttentionMixer::project_global(Context& ctx, const Tensor& normed, const QkvHeads& own,
                                                           Scratch& scratch, Tape* tape) const {
  if (global_query_ == nullptr) return global_input(own, {}, {}, {});
  const std::int64_t batch = normed.size(0), positions = normed.size(1), count = global_rows(positions);
  const Tensor rows = scratch.tensor({batch, count, config_.width}, ctx.compute, tape),
               query = scratch.tensor({batch, count, global_query_->out()}, ctx.compute, tape),
               key_value = scratch.tensor({batch, positions, global_key_value_->out()}, ctx.compute, tape);
  ops::run(ctx, kernels::CopyRowsArgs{normed.slice(1, 0, count), rows});
  global_query_->apply(ctx, rows, query);
  global_key_value_->apply(ctx, normed, key_value);
  return global_input(own, rows, query, key_value);
}

// A second call reads its rows' bounds by themselves.
kernels::RowBounds AttentionMixer::of_global_rows(Context& ctx, std::int64_t rows, Scratch& scratch) const {
  if (!ctx.documents.given()) return {};
  kernels::RowBounds bounds;
  for (const auto& [from, to] :
       {std::pair{&ctx.documents.begin, &bounds.begin}, std::pair{&ctx.documents.end, &bounds.end}}) {
    *to = scratch.tensor({from->size(0), 1, rows}, Dtype::i32);
    ops::run(ctx, kernels::CopyRowsArgs{from->slice(2, 0, rows), *to});
  }
  return bounds;
}

void AttentionMixer::attend_globally(Context& ctx, const GlobalInput& in, Attended& attended, Scratch& scratch,
                                     Tape* tape) const {
  if (!config_.global.given()) return;
  const QkvHeads& x = in.heads;
  const std::int64_t rows = x.q.size(1);
  attended.global_lse = scratch.tensor({x.q.size(0), config_.heads, rows}, ctx.exact, tape);
  if (config_.global.added > 0)
    return attend_in_pieces(ctx, Side::rows, x, terms_of(ctx), attended.o.slice(1, 0, rows), attended.global_lse);
  const auto plan = plans_->global_plan(config_.heads, x.k.size(1), rows);
  ops::run(ctx, kernels::AttentionArgs{.plan = plan.get(),
                                       .q = x.q,
                                       .k = x.k,
                                       .v = x.v,
                                       .o = attended.o.slice(1, 0, rows).split_last(config_.heads, config_.value_size),
                                       .lse = attended.global_lse,
                                       .scale = scale(),
                                       .bounds = of_global_rows(ctx, rows, scratch),
                                       .labels = distance_labels(terms_of(ctx).labels),
                                       .sink = sink_of(ctx)});
}

AttentionMixer::GlobalGradients AttentionMixer::global_gradients(Context& ctx, const GlobalInput& in,
                                                                 Scratch& scratch) const {
  if (!config_.global.given()) return {};
  if (global_query_ != nullptr) return {{}, scratch.like(in.query), scratch.like(in.key_value)};
  return {scratch.tensor({in.heads.k.size(0), in.heads.k.size(1), query_key_value_.out()}, ctx.compute), {}, {}};
}

void AttentionMixer::backward_globally(Context& ctx, const GlobalInput& in, const Attended& attended,
                                       const Tensor& d_heads, const GlobalGradients& gradients) const {
  if (!config_.global.given()) return;
  const QkvHeads& x = in.heads;
  const std::int64_t batch = x.q.size(0), rows = x.q.size(1), positions = x.k.size(1);
  QkvHeads grad;
  if (global_query_ != nullptr) {
    grad = global_input({}, in.rows, gradients.query, gradients.key_value).heads;
  } else {
    ops::fill_zero(ctx, gradients.qkv);  // the queries of other rows
    grad = heads_of(gradients.qkv, config_.heads);
    grad.q = grad.q.slice(1, 0, rows);
  }
  if (config_.global.added > 0) {
    const std::int64_t keys = config_.heads * config_.key_size;
    const Tensor dq = global_query_ != nullptr ? gradients.query : gradients.qkv.slice(-1, 0, keys).slice(1, 0, rows);
    return backward_in_pieces(ctx, Side::rows, x, terms_of(ctx), attended.o.slice(1, 0, rows), attended.global_lse,
                              {d_heads.slice(1, 0, rows), dq, grad.k, grad.v});
  }
  {
    Scratch inner(ctx);
    const auto plan = plans_->global_plan(config_.heads, positions, rows);
    const auto of_rows = [&](const Tensor& all) {
      return all.slice(1, 0, rows).split_last(config_.heads, config_.value_size);
    };
    ops::run(ctx, kernels::AttentionBackwardArgs{.plan = plan.get(),
                                                 .q = x.q,
                                                 .k = x.k,
                                                 .v = x.v,
                                                 .o = of_rows(attended.o),
                                                 .lse = attended.global_lse,
                                                 .dout = of_rows(d_heads),
                                                 .dq = grad.q,
                                                 .dk = grad.k,
                                                 .dv = grad.v,
                                                 .scale = scale(),
                                                 .bounds = of_global_rows(ctx, rows, inner),
                                                 .labels = distance_labels(terms_of(ctx).labels),
                                                 .dtable = distances_in(terms_of(ctx).labels.gradient),
                                                 .sink = sink_of(ctx),
                                                 .dsink = sink_of(ctx, true)});
  }
  for (std::int64_t b = 0; b < batch; ++b) ops::fill_zero(ctx, first_rows(d_heads, b, rows));
}

void AttentionMixer::add_global_gradients(Context& ctx, const GlobalInput& in, const GlobalGradients& gradients,
                                          const Tensor& normed, const Tensor& dnormed) const {
  if (global_query_ == nullptr) return;
  Scratch scratch(ctx);
  const Tensor drows = scratch.like(in.rows), dx = scratch.like(dnormed);
  global_query_->gradients(ctx, in.rows, gradients.query, drows);
  global_key_value_->gradients(ctx, normed, gradients.key_value, dx);
  ops::run(ctx, kernels::AddArgs{dx, dnormed});
  const std::int64_t rows = in.rows.size(1);
  for (std::int64_t b = 0; b < in.rows.size(0); ++b)
    ops::run(ctx, kernels::AddArgs{first_rows(drows, b, rows), first_rows(dnormed, b, rows)});
}

}  // namespace longstride
