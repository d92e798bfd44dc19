// How a run treats the states of its rows before and after the model's work.
#pragma once
#include "framework/core/context.h"

namespace longstride::ops {

// The states of an evaluation's rows, in scratch; absent if the model has none.
RowStates take_states(const Context& ctx, const StateSet& set, std::int64_t rows, Scratch& scratch);
// Before the work: rows that start a stream (starts (rows) u8) remember nothing.
void begin_states(Context& ctx, const StateSet& set, const RowStates& rows, const Tensor& starts);
// After it: what was written for the next step is what the next step reads.
void keep_states(Context& ctx, const RowStates& rows);

}  // namespace longstride::ops
