// y = (x - mean(x)) / sqrt(var(x) + eps) * gain + bias, over the last dimension (Ba et al. 2016).
// Backward, with h = (x - mean) rstd and g = dy gain: dx = rstd (g - mean(g) - h mean(g h)), dgain += sum over rows of
// dy h, dbias += sum over rows of dy. Sums over rows do not depend on the number of threads.
//
// On the CPU all views are of one type. On a GPU x and dx are of the residual stream's type (f32; bf16 beside bf16), y,
// dy and dbranch of the compute type, and gain, bias, mean, rstd, dgain, dbias and partials f32; 2^30 rows, columns or
// elements from one row to the next are refused (std::logic_error).
#pragma once
#include "kernels/base/row_chunks.h"
#include "kernels/base/view.h"
#include "kernels/dropout/dropout.h"

namespace longstride::kernels {

struct LayerNormArgs {
  View x;     // (rows, width), last dimension dense
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
  View dx;         // (rows, width), last dimension dense; may be dy when of one type
  bool add_to_dx;  // keep what dx holds and add to it
  View dgain;      // (width), accumulates
  View dbias;      // (width), accumulates
  View partials;   // (row_chunks(rows).chunks, 2, width), row_chunks of cpu or cuda: workspace. 3 with branch_sums
};

// dropout and then layer_norm of its y, with the same bits; norm.x is dropout.y.
struct DropoutAddLayerNormArgs {
  DropoutArgs dropout;
  LayerNormArgs norm;
};

// layer_norm_backward and then dropout of its dx, with the same bits; dropout.branch is norm.dx, and dropout.y may be
// norm.dy. branch_sums += the column sums of dropout.y: the gradient of the bias that was added last before dropout.
struct LayerNormBackwardDropoutArgs {
  LayerNormBackwardArgs norm;
  DropoutArgs dropout;
  View branch_sums;  // (width), of dgain's type; may be absent
};

namespace cpu {
void layer_norm(const LayerNormArgs&, const Launch&);
void layer_norm_backward(const LayerNormBackwardArgs&, const Launch&);
void dropout_add_layer_norm(const DropoutAddLayerNormArgs&, const Launch&);
void layer_norm_backward_dropout(const LayerNormBackwardDropoutArgs&, const Launch&);
}  // namespace cpu
namespace cuda {
void layer_norm(const LayerNormArgs&, const Launch&);
void layer_norm_backward(const LayerNormBackwardArgs&, const Launch&);
void dropout_add_layer_norm(const DropoutAddLayerNormArgs&, const Launch&);
void layer_norm_backward_dropout(const LayerNormBackwardDropoutArgs&, const Launch&);
}  // namespace cuda

}  // namespace longstride::kernels
