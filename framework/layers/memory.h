// What a layer remembers: the inputs of its attention at the last positions before the segment (Dai et al. 2019,
// section 3.2; Sukhbaatar et al. 2019, section 3). They are states of the row (framework/core/state.h), no gradient
// passes through them, and they are projected anew in every step.
#pragma once
#include <string>

#include "framework/core/context.h"
#include "framework/layers/distance_config.h"

namespace longstride {

// How many positions a row remembers; equal in all layers. Null with `start: zeros`, whose rows always count.
class RememberedPositions {
 public:
  RememberedPositions(StateSet& states, const MemoryConfig& config);

  // Counts the segment's positions for the next step; once in a step or an evaluation's window.
  void add(Context& ctx, std::int64_t positions) const;
  // The first row of [memory | segment] that is not hidden: (batch) i32 in scratch; absent if none ever is.
  Tensor first_key(Context& ctx, Scratch& scratch) const;

 private:
  std::int64_t length_;
  const State* remembered_ = nullptr;
};

class Memory {
 public:
  Memory(StateSet& states, const std::string& name, std::int64_t width, const MemoryConfig& config);

  std::int64_t rows() const { return length_; }
  // [memory | segment]: (batch, rows() + seq, width), on the tape or in scratch; `segment` itself without a memory.
  Tensor join(Context& ctx, const Tensor& segment, Scratch& scratch, Tape* tape) const;
  // The last rows() of what join() gave become the next step's memory.
  void keep(Context& ctx, const Tensor& joined) const;

 private:
  std::int64_t length_;
  const State* rows_ = nullptr;
};

}  // namespace longstride
