// o_i = sum_j softmax_j(scale q_i . k_j) v_j over the keys j that the plan and, where given, bounds and lists allow i
// (Eq. 2 to 8), in tiles with an online softmax (Dao et al. 2022): no n x n matrix, and no tile without an allowed pair
// is touched. Labels add vectors to the keys (kernels/attention/term/labels.h), a sink joins the softmax (sink.h).
//
// k and v may have fewer heads, which divide those of q: query head h reads key head floor(h / (heads / key heads))
// (Ainslie et al. 2023; one key head: Shazeer 2019). Nothing is expanded but gradients (grouped_gradients.h).
//
// The result does not depend on the number of threads, bit for bit. A row without an allowed key gets o = 0, lse =
// -infinity and no gradient.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/attention/path.h"
#include "kernels/attention/pattern/block_lists.h"
#include "kernels/attention/pattern/row_bounds.h"
#include "kernels/attention/term/labels.h"
#include "kernels/base/op.h"

namespace longstride::kernels {

// Views of rank 4 are (batch, rows, heads, size) with any strides, except that the last is 1; q, o and their gradients
// have the plan's rows of queries and heads, k and v its rows of keys and the key heads. All have one type: f32 or f64
// on the CPU; bf16, f16 or f32 on the GPU, where scores and softmax are f32.
struct AttentionArgs {
  const AttentionPlan* plan = nullptr;
  Tensor q, k;  // key size
  Tensor v;     // value size
  Tensor o;     // value size, written
  Tensor lse;   // (batch, heads, n_q) contiguous, written: log of the softmax's denominator; f32 on the GPU
  double scale = 1;
  Tensor scratch = {};
  AttentionPath path = AttentionPath::automatic;
  RowBounds bounds = {};
  BlockLists lists = {};
  Labels labels = {};
  Tensor sink = {};  // (heads), of lse's type; finite

  void check(Device device) const;
  // The pattern's pairs are not counted here, so FLOPs are the caller's to add.
  Cost cost() const { return {WorkKind::attention_forward, bytes_of(q, k, v, o, lse), 0}; }
  Tensor scratch_on(Device device) const;
};
LONGSTRIDE_OP(attention, AttentionArgs)

// Overwrites dq, dk and dv, and adds to dtable and dsink in a fixed order.
struct AttentionBackwardArgs {
  const AttentionPlan* plan = nullptr;
  Tensor q, k, v, o, lse;  // as above, o and lse from forward
  Tensor dout;             // like o
  Tensor dq, dk, dv;       // like q, k, v
  double scale = 1;
  Tensor scratch = {};
  AttentionPath path = AttentionPath::automatic;
  RowBounds bounds = {};
  BlockLists lists = {};
  Labels labels = {};
  Tensor dtable = {};  // like the labels' table, but contiguous and of lse's type; absent: not wanted
  Tensor sink = {};
  Tensor dsink = {};  // like sink; absent: not wanted

  void check(Device device) const;
  Cost cost() const { return {WorkKind::attention_backward, bytes_of(q, k, v, o, lse, dout, dq, dk, dv), 0}; }
  Tensor scratch_on(Device device) const;
};
LONGSTRIDE_OP(attention_backward, AttentionBackwardArgs)

namespace cpu {
// Bytes of scratch, which depend only on the shapes, the plan and the number of threads.
std::size_t attention_scratch_bytes(const AttentionArgs&);
std::size_t attention_scratch_bytes(const AttentionBackwardArgs&);
}  // namespace cpu

}  // namespace longstride::kernels
