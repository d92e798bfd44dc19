// What the kernels of an op must move at least: every tensor once, however often they read it. Operations are counted
// where they can be what takes the time: in products.
#pragma once
#include "kernels/adam/adam.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/decode/decode.h"
#include "kernels/base/meter.h"
#include "kernels/column_sum/column_sum.h"
#include "kernels/copy_rows/copy_rows.h"
#include "kernels/draw/draw.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/gelu/gelu.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/muon/muon.h"
#include "kernels/query_key/query_key.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"

namespace longstride::ops {

using kernels::bytes_of;
using kernels::Cost;
using kernels::Work;

// Of attention, the operations depend on the pattern: who knows it counts them.
inline Cost cost(const kernels::AttentionArgs& a) {
  return {Work::attention_forward, bytes_of(a.q, a.k, a.v, a.o, a.lse), 0};
}
inline Cost cost(const kernels::AttentionBackwardArgs& a) {
  return {Work::attention_backward, bytes_of(a.q, a.k, a.v, a.o, a.lse, a.dout, a.dq, a.dk, a.dv), 0};
}
inline Cost cost(const kernels::AppendArgs& a) { return {Work::other, 2 * bytes_of(a.k, a.v), 0}; }
inline Cost cost(const kernels::DrawArgs& a) { return {Work::other, bytes_of(a.logits), 0}; }
inline Cost cost(const kernels::DecodeArgs& a) { return {Work::attention_forward, bytes_of(a.q, a.o), 0}; }

inline Cost cost(const kernels::DropoutArgs& a) { return {Work::normalise, bytes_of(a.branch, a.residual, a.y), 0}; }
inline Cost cost(const kernels::LayerNormArgs& a) { return {Work::normalise, bytes_of(a.x, a.y, a.mean, a.rstd), 0}; }
inline Cost cost(const kernels::LayerNormBackwardArgs& a) {
  return {Work::normalise, bytes_of(a.dy, a.x, a.mean, a.rstd, a.dx) + (a.add_to_dx ? bytes_of(a.dx) : 0), 0};
}
inline Cost cost(const kernels::DropoutAddLayerNormArgs& a) {
  return {Work::normalise, cost(a.dropout).bytes + bytes_of(a.norm.y, a.norm.mean, a.norm.rstd), 0};
}
inline Cost cost(const kernels::LayerNormBackwardDropoutArgs& a) {
  return {Work::normalise, cost(a.norm).bytes + bytes_of(a.dropout.y), 0};
}

inline Cost cost(const kernels::QueryKeyArgs& a) { return {Work::normalise, bytes_of(a.x, a.y), 0}; }
inline Cost cost(const kernels::QueryKeyBackwardArgs& a) { return {Work::normalise, bytes_of(a.dy, a.x, a.dx), 0}; }

inline Cost cost(const kernels::GeluArgs& a) { return {Work::gelu, bytes_of(a.x, a.y), 0}; }
inline Cost cost(const kernels::GeluBackwardArgs& a) { return {Work::gelu, bytes_of(a.dy, a.x, a.dx), 0}; }
inline Cost cost(const kernels::ColumnSumArgs& a) { return {Work::column_sum, bytes_of(a.x), 0}; }
inline Cost cost(const kernels::EmbeddingArgs& a) { return {Work::embedding, bytes_of(a.tokens, a.y), 0}; }
inline Cost cost(const kernels::SoftmaxCrossEntropyArgs& a) { return {Work::loss, bytes_of(a.logits, a.gradient), 0}; }

inline Cost cost(const kernels::AdamArgs& a) {
  return {Work::optimizer, 2 * bytes_of(a.weights, a.m, a.v) + bytes_of(a.gradient, a.low), 0};
}
inline Cost cost(const kernels::AverageArgs& a) {
  return {Work::optimizer, bytes_of(a.weights) + 2 * bytes_of(a.average), 0};
}
inline Cost cost(const kernels::NesterovArgs& a) {
  return {Work::optimizer, 4 * bytes_of(a.update), 0};  // which is of the type of gradient and m
}
inline Cost cost(const kernels::NormaliseArgs& a) { return {Work::optimizer, bytes_of(a.x, a.x, a.y), 0}; }
inline Cost cost(const kernels::PolynomialArgs& a) {
  return {Work::optimizer, bytes_of(a.x) + 2 * bytes_of(a.square), 0};
}
inline Cost cost(const kernels::OrthogonalStepArgs& a) {
  const double count = static_cast<double>(a.update.count());
  return {Work::optimizer,
          bytes_of(a.update) * (a.low.given() ? 2 : 1) + 2 * count * static_cast<double>(bytes_of(a.weights.dtype)), 0};
}
inline Cost cost(const kernels::OptimizerScalarsArgs&) { return {Work::optimizer, 0, 0}; }
inline Cost cost(const kernels::StartScalarsArgs&) { return {Work::optimizer, 0, 0}; }
inline Cost cost(const kernels::SumArgs& a) { return {a.squares ? Work::optimizer : Work::loss, bytes_of(a.x), 0}; }

inline Cost cost(const kernels::FillZeroArgs& a) { return {Work::other, bytes_of(a.x), 0}; }
inline Cost cost(const kernels::CopyArgs& a) { return {Work::other, bytes_of(a.from, a.to), 0}; }
inline Cost cost(const kernels::CopyRowsArgs& a) { return {Work::other, bytes_of(a.from, a.to), 0}; }
inline Cost cost(const kernels::AddArgs& a) { return {Work::other, bytes_of(a.a, a.b, a.y), 0}; }

}  // namespace longstride::ops
