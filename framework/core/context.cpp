#include "framework/core/context.h"

#include "framework/core/errors.h"

namespace longstride {

Tensor Scratch::tensor(const Shape& shape, Dtype dtype, Tape* tape) {
  return tape != nullptr ? tape->tensor(shape, dtype) : tensor(shape, dtype);
}

Tensor Tape::pop() {
  LONGSTRIDE_CHECK(!saved_.empty(), "backward pops more than forward saved");
  const Tensor t = saved_.back();
  saved_.pop_back();
  return t;
}

void Tape::close_frame() {
  LONGSTRIDE_CHECK(!frames_.empty() && frames_.back().saved == saved_.size(),
                   "a frame closes with {} tensors on the tape", saved_.size());
  arena_.release_tape(frames_.back().bytes);
  frames_.pop_back();
}

}  // namespace longstride
