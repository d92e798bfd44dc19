#include "framework/layers/memory.h"

#include "framework/ops/run.h"
#include "kernels/copy_rows/copy_rows.h"
#include "kernels/remembered/remembered.h"

namespace longstride {

RememberedPositions::RememberedPositions(StateSet& states, const MemoryConfig& config) : length_(config.length) {
  if (config.length > 0 && config.start == MemoryStart::empty) remembered_ = &states.add("remembered_positions", {1});
}

void RememberedPositions::add(Context& ctx, std::int64_t positions) const {
  if (remembered_ == nullptr) return;
  const std::int64_t rows = ctx.state.count();
  ops::run(ctx, kernels::RememberArgs{.now = ctx.state.now(*remembered_).reshape({rows}),
                                      .next = ctx.state.next(*remembered_).reshape({rows}),
                                      .length = length_,
                                      .added = positions});
}

Tensor RememberedPositions::first_key(Context& ctx, Scratch& scratch) const {
  if (remembered_ == nullptr) return {};
  const std::int64_t rows = ctx.state.count();
  const Tensor first = scratch.tensor({rows}, Dtype::i32);
  ops::run(ctx, kernels::FirstKeyArgs{
                    .now = ctx.state.now(*remembered_).reshape({rows}), .first_key = first, .length = length_});
  return first;
}

Memory::Memory(StateSet& states, const std::string& name, std::int64_t width, const MemoryConfig& config)
    : length_(config.length) {
  if (length_ > 0) rows_ = &states.add(name + ".memory", {length_, width});
}

Tensor Memory::join(Context& ctx, const Tensor& segment, Scratch& scratch, Tape* tape) const {
  if (rows_ == nullptr) return segment;
  const std::int64_t all = length_ + segment.size(1);
  const Tensor joined = scratch.tensor({segment.size(0), all, segment.size(2)}, segment.dtype(), tape);
  ops::run(ctx, kernels::CopyRowsArgs{ctx.state.now(*rows_), joined.slice(1, 0, length_)});
  ops::run(ctx, kernels::CopyRowsArgs{segment, joined.slice(1, length_, all)});
  return joined;
}

void Memory::keep(Context& ctx, const Tensor& joined) const {
  if (rows_ == nullptr) return;
  const std::int64_t all = joined.size(1);
  ops::run(ctx, kernels::CopyRowsArgs{joined.slice(1, all - length_, all), ctx.state.next(*rows_)});
}

}  // namespace longstride
