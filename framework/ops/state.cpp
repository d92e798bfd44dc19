#include "framework/ops/state.h"

#include "framework/ops/basic.h"
#include "kernels/clear_rows/clear_rows.h"

namespace longstride::ops {

RowStates take_states(const Context& ctx, const StateSet& set, std::int64_t rows, Scratch& scratch) {
  if (set.empty()) return {};
  const Shape flat = {rows * set.row_bytes(ctx.state_types())};
  const Tensor now = scratch.tensor(flat, Dtype::u8), next = scratch.tensor(flat, Dtype::u8);
  return {rows, ctx.state_types(), now, next};
}

void begin_states(Context& ctx, const StateSet& set, const RowStates& rows, const Tensor& starts) {
  for (const State& state : set.all()) {
    const Tensor now = rows.now(state);
    run(ctx, kernels::ClearRowsArgs{now.reshape({rows.count(), state.shape.count()}), starts});
  }
}

void keep_states(Context& ctx, const RowStates& rows) {
  if (rows.given()) copy(ctx, rows.all_next(), rows.all_now());
}

}  // namespace longstride::ops
