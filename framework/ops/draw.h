// The next byte of every sequence that is being generated.
#pragma once
#include "framework/core/context.h"
#include "kernels/draw/draw.h"

namespace longstride::ops {

// Sequences being generated.
struct Drawing {
  kernels::Sampling sampling;
  std::int64_t prompted = 0;        // bytes at the beginning of each that are given
  std::int64_t first_sequence = 0;  // of the batch, among all that are drawn with this seed
  Tensor bytes;                     // (batch, length) u8: those given, and then those drawn
  Tensor log_probabilities;         // (batch, length) f32; may be absent
  Tensor previous;                  // (batch, 1) u8: the byte before the position
};

// From logits (batch, vocabulary) the byte at `position`; previous then holds it. While ctx.position is set, that is
// the position, and it goes one further.
void draw(Context& ctx, const Tensor& logits, const Drawing& drawing, std::int64_t position);

}  // namespace longstride::ops
