// The memory of a layer: the inputs of its attention at the last positions before the segment (Dai et al. 2019, section
// 3.2; Sukhbaatar et al. 2019, section 3), and before them the rows that earlier ones were compressed to (Rae et al.
// 2020). They are states of the row (framework/core/state.h) and of the compute type. No gradient passes through them,
// and they are projected anew in every step.
//
// A segment that cannot be compressed, because `rate` does not divide it, is the last of its stream: nothing is
// remembered after it.
#pragma once
#include <string>

#include "framework/core/context.h"
#include "framework/mixers/distance/config.h"
#include "kernels/attention/pattern/row_bounds.h"

namespace longstride {

// The key rows of [compressed | memory | segment] that are not hidden: from the row that all queries share, or between
// those of each query's document. One of the two, or none: nothing is hidden.
struct SeenRows {
  Tensor first_key = {};           // (batch) i32
  kernels::RowBounds bounds = {};  // (batch, 1, seq)
};

// How many of these rows a row of the batch sees; equal in all layers. Null with `start: zeros`, whose rows always
// count. The count is of the exact type, because bf16 would round it.
class RememberedPositions {
 public:
  RememberedPositions(StateSet& states, const std::string& prefix, const MemoryConfig& config);

  // Counts the segment's positions for the next step; once in a step or an evaluation's window.
  void add(Context& ctx, std::int64_t positions) const;
  // In scratch.
  SeenRows seen(Context& ctx, Scratch& scratch) const;
  // The first row that the segment's last query sees, (batch) i32 in scratch; absent if none is ever hidden.
  Tensor first_of_last(Context& ctx, Scratch& scratch) const;

 private:
  Tensor now(const Context& ctx) const;

  MemoryConfig config_;
  const State* remembered_ = nullptr;
};

class Memory {
 public:
  Memory(StateSet& states, const std::string& name, std::int64_t width, const MemoryConfig& config);

  std::int64_t rows() const { return config_.rows(); }  // before the segment
  // [compressed | memory | segment]: (batch, rows() + seq, width), on the tape or in scratch; `segment` itself without
  // a memory.
  Tensor join(Context& ctx, const Tensor& segment, Scratch& scratch, Tape* tape) const;
  // The rows of what join() gave, or of projections of it, that leave the memory as the segment enters it and are to be
  // compressed; absent if none are.
  Tensor evicted(const Tensor& joined) const;
  // The last rows of what join() gave become the next step's memory, and `compressed`, if rows are evicted, the last
  // ones of its compressed memory.
  void keep(Context& ctx, const Tensor& joined, const Tensor& compressed) const;

 private:
  void keep_compressed(Context& ctx, const Tensor& added) const;

  MemoryConfig config_;
  const State *rows_ = nullptr, *compressed_ = nullptr;
};

}  // namespace longstride
