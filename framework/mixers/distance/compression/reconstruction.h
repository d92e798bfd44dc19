// Attention reconstruction (Rae et al. 2020, Algorithm 2): how much attention over compressed rows differs from
// attention over the rows that they were made of. With content alone, without a mask, positions or biases, per head
//   A(q, m) = softmax(q k(m)^T / sqrt(key size)) v(m),    loss = mean |A(q, new) - A(q, old)|^2
// over rows of the batch, queries and elements. Queries, and keys and values of the old rows, are constants.
#pragma once
#include "framework/core/context.h"

namespace longstride {

struct Reconstruction {
  Tensor q;                     // (batch, seq, heads, key size)
  Tensor old_keys, old_values;  // (batch, n, heads, key size or value size)
  Tensor keys, values;          // (batch, m, heads, key size or value size)
  Tensor dkeys, dvalues;        // like keys, values: written
  Tensor total;                 // (1) f64, to which the loss is added
  double scale = 1;             // factor of the loss
  Tensor first_key = {};        // (batch) i32: a row of the batch where it exceeds `last` has hidden rows and counts 0
  std::int64_t last = 0;
};

void reconstruct_attention(Context& ctx, const Reconstruction& args);

}  // namespace longstride
