// Added global rows (Ainslie et al. 2020): positions see one another by the pattern and all global rows, and global
// rows see both, each side under one softmax. Either is two calls over keys that share none, with bounds and labels of
// their own, whose results are merged. A sink is in the first one's softmax, and so in the sum.
#include "framework/mixers/attention/mixer.h"
#include "framework/ops/basic.h"
#include "kernels/attention/attention.h"
#include "kernels/copy_rows/copy_rows.h"
#include "kernels/merge_parts/merge_parts.h"

namespace longstride {

// A call to the keys of rows [first, first + count) of all.
struct AttentionMixer::Piece {
  std::shared_ptr<const kernels::AttentionPlan> plan;
  std::int64_t first = 0, count = 0;
  kernels::RowBounds bounds = {};
  kernels::BlockLists lists = {};
  kernels::Labels labels = {};
  Tensor dtable = {};
  Table sink = {};

  Tensor keys(const Tensor& all) const { return all.slice(1, first, first + count); }
};

namespace {

kernels::RowBounds bounds_of(const kernels::GlobalBounds& seen) { return {seen.begin, seen.end}; }

// Piece p of a tensor that holds pieces along its first dimension.
Tensor piece_of(const Tensor& pieces, std::size_t p, std::int64_t each) {
  const auto first = static_cast<std::int64_t>(p) * each;
  return pieces.slice(0, first, first + each);
}

}  // namespace

Tensor AttentionMixer::distances_in(const Tensor& table) const {
  return table.given() ? table.slice(0, 0, 2 * config_.labels + 1) : Tensor{};
}

// Without known groups all rows are of the own one.
Tensor AttentionMixer::relations_in(const Tensor& table, bool groups) const {
  const std::int64_t first = 2 * config_.labels + 1;
  return table.given() ? table.slice(0, first, first + (groups ? 2 : 1)) : Tensor{};
}

kernels::Labels AttentionMixer::distance_labels(const Table& table) const {
  return {.table = distances_in(table.value), .clip = static_cast<std::int32_t>(config_.labels)};
}

std::vector<AttentionMixer::Piece> AttentionMixer::pieces_of(Context& ctx, Side side, std::int64_t positions,
                                                             const Terms& terms, Scratch& scratch,
                                                             bool backward) const {
  const std::int64_t added = config_.global.added, heads = config_.heads;
  const kernels::GlobalSight& sight = ctx.global;
  const Tensor &own = side == Side::positions ? sight.group_of_position : sight.group_of_row,
               &other = side == Side::positions ? sight.group_of_row : sight.group_of_position;
  const Table& table = side == Side::positions ? terms.labels : terms.global_labels;
  Piece near, far;  // to rows of the own side, and of the other one
  if (side == Side::positions) {
    near = {plans_->plan(layer_, positions), added, positions, of_documents(ctx),
            lists_of(ctx, positions, scratch, backward)};
    far = {plans_->global_plan(heads, added, positions), 0, added, bounds_of(sight.rows_by_positions)};
  } else {
    near = {plans_->global_plan(heads, added, added), 0, added, bounds_of(sight.rows_by_rows)};
    far = {plans_->global_plan(heads, positions, added), added, positions, bounds_of(sight.positions_by_rows)};
  }
  near.labels = distance_labels(table);
  near.dtable = distances_in(table.gradient);
  near.sink = terms.sink;
  far.labels = {.table = relations_in(table.value, own.given())};
  if (far.labels.given()) far.labels.query_groups = own, far.labels.key_groups = other;
  far.dtable = relations_in(table.gradient, own.given());
  return {std::move(near), std::move(far)};
}

void AttentionMixer::attend_in_pieces(Context& ctx, Side side, const QkvHeads& in, const Terms& terms, const Tensor& o,
                                      const Tensor& lse) const {
  const std::int64_t batch = in.q.size(0), queries = in.q.size(1), heads = config_.heads, size = config_.value_size;
  Scratch scratch(ctx);
  const Tensor parts = scratch.tensor({2 * batch, queries, heads, size}, ctx.compute),
               lse_parts = scratch.tensor({2, batch, heads, queries}, ctx.exact);
  const std::vector<Piece> pieces = pieces_of(ctx, side, in.k.size(1) - config_.global.added, terms, scratch, false);
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const Piece& piece = pieces[p];
    ops::run(ctx, kernels::AttentionArgs{.plan = piece.plan.get(),
                                         .q = in.q,
                                         .k = piece.keys(in.k),
                                         .v = piece.keys(in.v),
                                         .o = piece_of(parts, p, batch),
                                         .lse = piece_of(lse_parts, p, 1).reshape(lse.shape()),
                                         .scale = scale(),
                                         .bounds = piece.bounds,
                                         .lists = piece.lists,
                                         .labels = piece.labels,
                                         .sink = piece.sink.value});
  }
  const Tensor merged = piece_of(parts, 0, batch);
  ops::run(ctx, kernels::MergePartsArgs{parts, lse_parts, merged, lse});
  ops::run(ctx, kernels::CopyRowsArgs{merged.reshape({batch, queries, heads * size}), o});
}

void AttentionMixer::backward_in_pieces(Context& ctx, Side side, const QkvHeads& in, const Terms& terms,
                                        const Tensor& o, const Tensor& lse, const PiecesGradients& gradients) const {
  const std::int64_t batch = in.q.size(0), queries = in.q.size(1), heads = config_.heads, size = config_.key_size;
  Scratch scratch(ctx);
  const Tensor dq = scratch.tensor({2 * batch, queries, heads, size}, ctx.compute);
  const std::vector<Piece> pieces = pieces_of(ctx, side, in.k.size(1) - config_.global.added, terms, scratch, true);
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const Piece& piece = pieces[p];
    ops::run(ctx, kernels::AttentionBackwardArgs{.plan = piece.plan.get(),
                                                 .q = in.q,
                                                 .k = piece.keys(in.k),
                                                 .v = piece.keys(in.v),
                                                 .o = o.split_last(heads, config_.value_size),
                                                 .lse = lse,
                                                 .dout = gradients.dout.split_last(heads, config_.value_size),
                                                 .dq = piece_of(dq, p, batch),
                                                 .dk = piece.keys(gradients.dk),
                                                 .dv = piece.keys(gradients.dv),
                                                 .scale = scale(),
                                                 .bounds = piece.bounds,
                                                 .lists = piece.lists,
                                                 .labels = piece.labels,
                                                 .dtable = piece.dtable,
                                                 .sink = piece.sink.value,
                                                 .dsink = piece.sink.gradient});
  }
  const Tensor sum = piece_of(dq, 0, batch);
  ops::run(ctx, kernels::AddArgs{piece_of(dq, 1, batch), sum});
  ops::run(ctx, kernels::CopyRowsArgs{sum.reshape({batch, queries, heads * size}), gradients.dq});
}

}  // namespace longstride
