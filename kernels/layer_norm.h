// y = (x - mean(x)) / sqrt(var(x) + eps) * gain + bias, over the last dimension (Ba et al. 2016).
// Backward, with h = (x - mean) rstd and g = dy gain: dx = rstd (g - mean(g) - h mean(g h)), dgain += sum over rows of
// dy h, dbias += sum over rows of dy. Sums over rows do not depend on the number of threads.
#pragma once
#include "kernels/base/row_chunks.h"
#include "kernels/base/view.h"

namespace longstride::kernels {

struct LayerNormArgs {
  View x;     // (rows, width), last dimension dense; all of one type
  View gain;  // (width)
  View bias;  // (width)
  View y;     // (rows, width), last dimension dense
  View mean;  // (rows), saved for backward; may be absent in evaluation
  View rstd;  // (rows), likewise
  float epsilon = 1e-5f;
};

struct LayerNormBackwardArgs {
  View dy;         // (rows, width), last dimension dense
  View x;          // (rows, width), last dimension dense
  View gain;       // (width)
  View mean;       // (rows)
  View rstd;       // (rows)
  View dx;         // (rows, width), last dimension dense; may be dy
  bool add_to_dx;  // keep what dx holds and add to it
  View dgain;      // (width), accumulates
  View dbias;      // (width), accumulates
  View partials;   // (row_chunks(rows).chunks, 2, width): workspace
};

namespace cpu {
void layer_norm(const LayerNormArgs&, const Launch&);
void layer_norm_backward(const LayerNormBackwardArgs&, const Launch&);
}  // namespace cpu
namespace cuda {
void layer_norm(const LayerNormArgs&, const Launch&);
void layer_norm_backward(const LayerNormBackwardArgs&, const Launch&);
}  // namespace cuda

}  // namespace longstride::kernels
