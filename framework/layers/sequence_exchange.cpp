#include "framework/layers/sequence_exchange.h"

#include "framework/core/errors.h"
#include "framework/ops/run.h"
#include "kernels/copy_rows/copy_rows.h"

namespace longstride {
namespace {

// For every group calls f(its columns of `positions` as (ranks, run, width / ranks), the same columns of `packed`),
// where packed[r] is what rank r sends or receives.
template <class F>
void for_each_group(Context& ctx, const Tensor& positions, const std::vector<std::int64_t>& groups,
                    const Tensor& packed, F&& f) {
  const int ranks = ctx.group->size();
  std::int64_t from = 0;
  for (const std::int64_t columns : groups) {
    const Tensor mine = positions.slice(2, from, from + columns),
                 part = packed.slice(2, from / ranks, (from + columns) / ranks);
    f(Tensor(mine.data(), mine.dtype(), part.shape(), {columns / ranks, mine.stride(1), 1}), part);
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
  for_each_group(ctx, positions, groups, packed, [&](const Tensor& mine, const Tensor& part) {
    ops::run(ctx, kernels::CopyRowsArgs{mine, part});
  });
  ctx.group->exchange(ctx, packed, heads.reshape(packed.shape()));
}

void heads_to_positions(Context& ctx, const Tensor& heads, const std::vector<std::int64_t>& groups,
                        const Tensor& positions) {
  if (ctx.sequence_ranks() == 1) return;
  Scratch scratch(ctx);
  const Tensor packed = pieces(positions, ctx.group->size(), scratch);
  ctx.group->exchange(ctx, heads.reshape(packed.shape()), packed);
  for_each_group(ctx, positions, groups, packed, [&](const Tensor& mine, const Tensor& part) {
    ops::run(ctx, kernels::CopyRowsArgs{part, mine});
  });
}

}  // namespace longstride
