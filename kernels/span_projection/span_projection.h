// Keys and values of the rows that heads with spans read. x (batch, n_k, in) are the rows of a memory and, at the end,
// the n_q of a segment; y = x W^T + b (batch, n_k, out) has the columns [keys: heads x key size | values: heads x value
// size] of the attention that `read` describes (kernels/distance_attention).
//
//   dW (out, in) += dy^T x,  db (out) += column sums of dy
//
// A head reads the rows from first_row(head) on, and a segment's own rows count as read. Columns of y are written from
// their head's first row on; rows before it may be left as they are, and the gradients read neither dy nor x there.
//
// On the CPU neighbouring heads with the same first row share products. On a GPU, where spans are in device memory,
// panels of 128 columns begin with the tile of 64 rows that holds the first row of any of their heads: attention reads
// whole tiles of keys, of which every element must be finite. Rows of dy between the panel's first and a head's own are
// summed, and must be 0, as attention leaves them. Without such a kernel (uses_panels) a GPU computes and sums all
// rows.
#pragma once
#include "kernels/base/op.h"
#include "kernels/distance_attention/distance_attention.h"

namespace longstride::kernels {

struct SpanProjectionArgs {
  DistanceScores read;  // which rows heads read; of q and k the shapes alone
  Tensor x;             // (batch, n_k, in)
  Tensor weight;        // (out, in)
  Tensor y;             // (batch, n_k, out), written
  Tensor bias = {};     // (out)

  void check(Device device) const;
};
LONGSTRIDE_OP(span_projection, SpanProjectionArgs)

struct SpanProjectionBackwardArgs {
  DistanceScores read;
  Tensor dy;          // (batch, n_k, out)
  Tensor x;           // (batch, n_k, in)
  Tensor dweight;     // (out, in), exact type, added to
  Tensor dbias = {};  // (out), likewise
  Tensor scratch = {};

  void check(Device device) const;
  Tensor scratch_on(Device device) const;
};
LONGSTRIDE_OP(span_projection_backward, SpanProjectionBackwardArgs)

// The first row that a head reads, at most the segment's first. Requires spans in host memory.
std::int64_t first_row(const DistanceScores& read, std::int64_t head);

namespace cuda {

// True if the kernels for Hopper take these shapes; `y` is y or dy.
bool takes_panels(const DistanceScores& read, const Tensor& x, const Tensor& y);
// True if this GPU uses them for a projection without a bias.
#ifdef LONGSTRIDE_CUDA
bool uses_panels(const DistanceScores& read, const Tensor& x, const Tensor& y);
#else
inline bool uses_panels(const DistanceScores&, const Tensor&, const Tensor&) { return false; }
#endif

}  // namespace cuda

}  // namespace longstride::kernels
