#include "framework/mixers/distance/memory.h"

#include "framework/ops/basic.h"
#include "kernels/copy_rows/copy_rows.h"
#include "kernels/remembered/remembered.h"

namespace longstride {
namespace {

// True if a segment of this length is the last of its stream.
bool ends_stream(const MemoryConfig& config, std::int64_t positions) {
  return config.compressed > 0 && positions % config.rate != 0;
}

}  // namespace

RememberedPositions::RememberedPositions(StateSet& states, const std::string& prefix, const MemoryConfig& config)
    : config_(config) {
  if (config.length > 0 && config.start == MemoryStart::empty)
    remembered_ = &states.add(prefix + "remembered_positions", {1}, StateType::exact);
}

Tensor RememberedPositions::now(const Context& ctx) const {
  return remembered_ != nullptr ? ctx.state.now(*remembered_).reshape({ctx.state.count()}) : Tensor{};
}

void RememberedPositions::add(Context& ctx, std::int64_t positions) const {
  if (remembered_ == nullptr) return;
  const std::int64_t rows = ctx.state.count();
  const Tensor next = ctx.state.next(*remembered_).reshape({rows});
  if (ends_stream(config_, positions)) return ops::fill_zero(ctx, next);
  kernels::RememberArgs args{.now = now(ctx), .next = next, .length = config_.length, .added = positions};
  args.begin = ctx.documents.begin;
  if (config_.compressed > 0) {
    args.compressed = config_.compressed;
    args.rate = config_.rate;
    args.block = config_.compresses_neighbours() ? config_.rate : positions;
  }
  ops::run(ctx, args);
}

SeenRows RememberedPositions::seen(Context& ctx, Scratch& scratch) const {
  const DocumentBounds& of = ctx.documents;
  SeenRows seen;
  if (of.given()) {
    seen.bounds.begin = scratch.like(of.begin);
    seen.bounds.end = scratch.like(of.end);
    ops::run(ctx,
             kernels::KeyBoundsArgs{now(ctx), of.begin, of.end, seen.bounds.begin, seen.bounds.end, config_.rows()});
  } else if (remembered_ != nullptr) {
    seen.first_key = scratch.tensor({ctx.state.count()}, Dtype::i32);
    ops::run(ctx, kernels::FirstKeyArgs{now(ctx), seen.first_key, config_.rows()});
  }
  return seen;
}

Tensor RememberedPositions::first_of_last(Context& ctx, Scratch& scratch) const {
  if (!ctx.documents.given()) return seen(ctx, scratch).first_key;
  const std::int64_t rows = ctx.documents.begin.size(0), positions = ctx.documents.begin.size(2);
  const Tensor first = scratch.tensor({rows}, Dtype::i32);
  Scratch inner(ctx);
  ops::run(ctx, kernels::CopyRowsArgs{seen(ctx, inner).bounds.begin.slice(2, positions - 1, positions),
                                      first.reshape({rows, 1, 1})});
  return first;
}

Memory::Memory(StateSet& states, const std::string& name, std::int64_t width, const MemoryConfig& config)
    : config_(config) {
  if (config.length > 0) rows_ = &states.add(name + ".memory", {config.length, width}, StateType::compute);
  if (config.compressed > 0)
    compressed_ = &states.add(name + ".compressed_memory", {config.compressed, width}, StateType::compute);
}

Tensor Memory::join(Context& ctx, const Tensor& segment, Scratch& scratch, Tape* tape) const {
  if (rows_ == nullptr) return segment;
  const std::int64_t all = rows() + segment.size(1);
  const Tensor joined = scratch.tensor({segment.size(0), all, segment.size(2)}, segment.dtype(), tape);
  if (compressed_ != nullptr)
    ops::run(ctx, kernels::CopyRowsArgs{ctx.state.now(*compressed_), joined.slice(1, 0, config_.compressed)});
  ops::run(ctx, kernels::CopyRowsArgs{ctx.state.now(*rows_), joined.slice(1, config_.compressed, rows())});
  ops::run(ctx, kernels::CopyRowsArgs{segment, joined.slice(1, rows(), all)});
  return joined;
}

Tensor Memory::evicted(const Tensor& joined) const {
  const std::int64_t positions = joined.size(1) - rows();
  if (compressed_ == nullptr || ends_stream(config_, positions)) return {};
  return joined.slice(1, config_.compressed, config_.compressed + positions);
}

void Memory::keep(Context& ctx, const Tensor& joined, const Tensor& compressed) const {
  if (rows_ == nullptr) return;
  const std::int64_t all = joined.size(1);
  if (compressed_ != nullptr) keep_compressed(ctx, compressed);
  if (ends_stream(config_, all - rows())) return ops::fill_zero(ctx, ctx.state.next(*rows_));
  ops::run(ctx, kernels::CopyRowsArgs{joined.slice(1, all - config_.length, all), ctx.state.next(*rows_)});
}

void Memory::keep_compressed(Context& ctx, const Tensor& added) const {
  const Tensor now = ctx.state.now(*compressed_), next = ctx.state.next(*compressed_);
  if (!added.given()) return ops::fill_zero(ctx, next);
  const std::int64_t all = config_.compressed, kept = all - added.size(1);
  ops::run(ctx, kernels::CopyRowsArgs{now.slice(1, added.size(1), all), next.slice(1, 0, kept)});
  ops::run(ctx, kernels::CopyRowsArgs{added, next.slice(1, kept, all)});
}

}  // namespace longstride
