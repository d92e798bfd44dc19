// y_i = (x_i W_e) + sum_j o_i^(j) W_j: token plus position embeddings (section 5.3), the input shifted right by one
// behind a learned start vector.
#pragma once
#include <vector>

#include "framework/core/context.h"

namespace longstride::ops {

// Position p reads row (p / divisor) mod size of `table` (size, width).
struct PositionTable {
  std::int64_t divisor = 1;
  Tensor table;
};

// tokens (batch, seq) u8. Slot t is position first + t. Position 0 takes `start` (width); any other takes the token
// before it, which is tokens[t - 1] when first is 0 and tokens[t] otherwise (decoding: the last byte drawn).
struct Embedding {
  Tensor start, token_table;  // (width), (vocabulary, width)
  std::vector<PositionTable> positions;
  std::int64_t first = 0;
};

void embed(Context& ctx, const Embedding& embedding, const Tensor& tokens, const Tensor& y /* (batch, seq, width) */);
// Adds to the gradients, held in an Embedding of the same layout. Deterministic.
void embed_backward(Context& ctx, const Tensor& dy, const Tensor& tokens, const Embedding& gradients);

}  // namespace longstride::ops
