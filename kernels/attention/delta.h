// Common to all backward passes: delta, the gradient of a sink, rows without a query.
#pragma once
#include "kernels/attention/attention.h"

namespace longstride::kernels::cuda {

// True if every row of a matrix begins at a multiple of 16 bytes and has a multiple of as many.
inline bool rows_on_16_bytes(const Tensor& v) {
  const auto bytes = [&](std::int64_t elements) { return elements * static_cast<std::int64_t>(bytes_of(v.dtype())); };
  bool aligned = reinterpret_cast<std::uintptr_t>(v.data()) % 16 == 0 && bytes(v.size(-1)) % 16 == 0;
  for (int d = 0; d < v.rank() - 1; ++d) aligned &= bytes(v.stride(d)) % 16 == 0;
  return aligned;
}

// delta (batch, heads, n) f32: the sum over a row of dout * o, both (batch, n, heads, size).
void attention_delta(const Tensor& o, const Tensor& dout, float* delta, const Launch&);

// dsink -= the sum over a head's rows of exp(sink - lse) delta.
void attention_sink_gradient(const AttentionBackwardArgs&, const float* delta, const Launch&);

// Zeroes dk and dv of the heads whose first part does not have all positions as keys (summary rows alone).
void attention_zero_unreached(const AttentionBackwardArgs&, const Launch&);

}  // namespace longstride::kernels::cuda
