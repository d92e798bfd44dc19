#include "framework/layers/sequence_exchange.h"

#include "framework/core/errors.h"
#include "framework/ops/basic.h"

namespace longstride {
namespace {

// Calls f(a group's columns of `positions`, the same columns of `packed` (ranks, run, width / ranks)), where packed[r]
// is what rank r sends or receives.
template <class F>
void for_each_group(Context& ctx, const Tensor& positions, const std::vector<std::int64_t>& groups,
                    const Tensor& packed, F&& f) {
  const int ranks = ctx.group->size();
  std::int64_t from = 0;
  for (const std::int64_t columns : groups) {
    f(positions.reshape({positions.size(1), positions.size(2)}).slice(1, from, from + columns),
      packed.slice(2, from / ranks, (from + columns) / ranks));
    from += columns;
  }
  LONGSTRIDE_CHECK(from == positions.size(2), "groups of {} columns in {}", from, positions.shape().text());
}

Tensor pieces(const Tensor& positions, int ranks, Scratch& scratch) {
  LONGSTRIDE_CHECK(positions.rank() == 3 && positions.size(0) == 1 && positions.size(2) % ranks == 0,
                   "{} between {} ranks", positions.shape().text(), ranks);
  return scratch.tensor({ranks, positions.size(1), positions.size(2) / ranks}, positions.dtype());
}

}  // namespace

Tensor positions_like(const Context& ctx, const Tensor& heads, Scratch& scratch, Tape* tape) {
  const int ranks = ctx.sequence_ranks();
  if (ranks == 1) return heads;
  return scratch.tensor({heads.size(0), heads.size(1) / ranks, heads.size(2) * ranks}, heads.dtype(), tape);
}

void positions_to_heads(Context& ctx, const Tensor& positions, const std::vector<std::int64_t>& groups,
                        const Tensor& heads) {
  if (ctx.sequence_ranks() == 1) return;
  Scratch scratch(ctx);
  const Tensor packed = pieces(positions, ctx.group->size(), scratch);
  for_each_group(ctx, positions, groups, packed,
                 [&](const Tensor& columns, const Tensor& part) { ops::split_columns(ctx, columns, part); });
  ctx.group->all_to_all(ctx, packed, heads.reshape(packed.shape()));
}

void heads_to_positions(Context& ctx, const Tensor& heads, const std::vector<std::int64_t>& groups,
                        const Tensor& positions) {
  if (ctx.sequence_ranks() == 1) return;
  Scratch scratch(ctx);
  const Tensor packed = pieces(positions, ctx.group->size(), scratch);
  ctx.group->all_to_all(ctx, heads.reshape(packed.shape()), packed);
  for_each_group(ctx, positions, groups, packed,
                 [&](const Tensor& columns, const Tensor& part) { ops::join_columns(ctx, part, columns); });
}

}  // namespace longstride
