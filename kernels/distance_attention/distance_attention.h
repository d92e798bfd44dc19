// Attention whose scores have a term of the distance (Dai et al. 2019, Transformer-XL, section 3.3), a learned span
// (Sukhbaatar et al. 2019), dilation (Beltagy et al. 2020) and dropout of probabilities. Query i of queries (batch,
// n_q, heads, d) is at position p_i = n_k - n_q + i of the keys (batch, n_k, heads, d), n_q <= n_k: what precedes the
// queries' own rows is memory. With dist = p_i - j,
//
//   score(i, j) = scale [(q_i + u_h) . k_j + (q_i + v_h) . T_h[min(dist, distances - 1)]]
//   weight(dist) = min((ramp + span_h longest_span - dist) / ramp, 1), 0 if that is below 1/1024; 1 without a span
//   P_ij = weight exp(score) / sum_j weight exp(score),     lse_i = log sum_j weight exp(score)
//   o_i = sum_j P_ij K_ij / (1 - p) v_j,                     K_ij = 1 with probability 1 - p
//
// over the keys j = p_i - m dilation_h >= first_key, for m = 0, 1, ... (from 1 without `self`), fewer than `window` and
// only where the weight is not 0. (A row whose only keys were at the very end of a ramp would divide by their weight,
// and its span's gradient would be rounding noise divided by it.) Multiplying probabilities by the weight and
// renormalising them is the same. A row without a key gets o = 0, lse = -infinity and no gradient.
//
// Gradients, with dP = dO V^T K / (1 - p), D_i = dO_i . o_i and dS = P (dP - D):
//
//   dq_i = scale sum_j dS_ij (k_j + T[dist]),   dk_j = scale sum_i dS_ij (q_i + u_h)
//   dv_j = sum_i P_ij K_ij / (1 - p) dO_i,      dT[t] = scale sum of dS_ij (q_i + v_h) over the pairs that read row t
//   du_h = scale sum_ij dS_ij k_j,              dv_h = scale sum_ij dS_ij T[dist]
//   dspan = longest_span / ramp sum of exp(score - lse) (dP - D) over the pairs with 0 < weight < 1
//
// Sums over rows are added in a fixed order: the result does not depend on the number of threads or blocks.
//
// Types: q, k, v, o, table and their like have the compute type (on the CPU f32 or f64; on a GPU bf16, f16 or f32,
// heads of up to 128 elements); lse, biases, span, and all gradients of parameters have the exact type. Products have
// operands of the compute type, so on a GPU q + u, q + v, P and dS are rounded to it. Views of rank 4 have any strides,
// except that the last is 1.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention/path.h"
#include "kernels/attention/pattern/row_bounds.h"
#include "kernels/base/op.h"

namespace longstride::kernels {

// Which probabilities are dropped: a function of (seed, step, layer, sequence, head, i, j), whatever the device and the
// tiles. Row r = ((sequence heads + head) n_q + i) of the global batch has ceil(n_k / 4) groups of four neighbouring
// keys; key j is dropped when word j mod 4 of philox(seed, r ceil(n_k / 4) + j / 4, step, attention_dropout of the
// layer) is below p 2^32.
struct ProbabilityDropout {
  float p = 0;  // in [0, 1); if 0, nothing is drawn and step and seed are not read
  std::uint64_t seed = 0;
  std::uint32_t layer = 0;
  const std::int64_t* step = nullptr;  // device memory
  std::int64_t first_sequence = 0;     // index in the global batch of sequence 0
};

// The most heads that CUDA kernels take, and the most elements of a head.
inline constexpr std::int64_t most_distance_on_gpu = 128;

// The key rows that query row i of a head sees: j = n_k - n_q + i - m step >= 0 for m in [begin, end).
struct SeenEntries {
  std::int64_t step, begin, end;
};

// The tensors and settings that determine scores and their weights.
struct DistanceScores {
  Tensor q;                   // (batch, n_q, heads, d)
  Tensor k;                   // (batch, n_k, heads, d)
  Tensor table = {};          // T: (distances, heads or 1, d), the last dimension dense; absent: no distance term
  Tensor content_bias = {};   // u_h: (heads, d), contiguous, exact type; absent: 0
  Tensor position_bias = {};  // v_h, the paper's name, not a value: likewise, requires a table
  Tensor span = {};           // (heads), exact type: the learned z; absent: every key has weight 1
  double longest_span = 0, ramp = 0;
  Tensor first_key = {};                    // (batch) i32 in device memory: key rows before it are hidden, but finite
  std::int64_t window = 0;                  // keys of a query, counted from its own position; 0: all
  bool self = true;                         // a query attends to its own position, which counts in `window` either way
  std::vector<std::int32_t> dilation = {};  // per head; empty: 1
  double scale = 1;
  ProbabilityDropout dropout = {};
  AttentionPath path = AttentionPath::automatic;
  RowBounds bounds = {};  // clamp the keys of each query; not for the Hopper kernels, nor counted in pairs()

  void check(Device device) const;
  // Pairs (i, j) of all heads of one sequence, as if no key were hidden by first_key or a span.
  std::int64_t pairs() const;

  // These read the span, if given, which must be in host memory; first_key and bounds hide nothing.
  std::int64_t weighted_pairs() const;  // whose weight is above 0
  std::int64_t unread_keys() const;     // rows at the beginning of k that no query reads
  double weight(std::int64_t head, std::int64_t i, std::int64_t j) const;  // query row i, key row j; 0: not seen
  SeenEntries seen_by(std::int64_t head) const;
};

struct DistanceAttentionArgs {
  DistanceScores scores;
  Tensor v;    // (batch, n_k, heads, d_v)
  Tensor o;    // (batch, n_q, heads, d_v), written
  Tensor lse;  // (batch, heads, n_q) contiguous, exact type, written
  Tensor scratch = {};

  void check(Device device) const;
  Cost cost() const;
  Tensor scratch_on(Device device) const;
};
LONGSTRIDE_OP(distance_attention, DistanceAttentionArgs)

// Overwrites dq, dk and dv, whose rows that no query sees become 0; adds to the gradients of table, biases and span,
// which are optional.
struct DistanceAttentionBackwardArgs {
  DistanceScores scores;
  Tensor v, o, lse;                                // as above, o and lse from forward
  Tensor dout;                                     // like o
  Tensor dq, dk;                                   // like q, k
  Tensor dv;                                       // like v
  Tensor dtable = {};                              // like table, exact type
  Tensor dcontent_bias = {}, dposition_bias = {};  // (heads, d), contiguous, exact type
  Tensor dspan = {};                               // (heads)
  // With a table, scratch in which CUDA kernels save probabilities for the gradients of keys and values, and gradients
  // of scores for that of the table: those of as many (sequence, head)s at a time as need this much, at least of one.
  std::int64_t saved_bytes = std::int64_t{4} << 30;
  Tensor scratch = {};

  void check(Device device) const;
  Cost cost() const;
  Tensor scratch_on(Device device) const;
};
LONGSTRIDE_OP(distance_attention_backward, DistanceAttentionBackwardArgs)

namespace cpu {
// Bytes of scratch, which depend only on the shapes and the number of threads.
std::size_t distance_attention_scratch_bytes(const DistanceAttentionArgs&);
std::size_t distance_attention_scratch_bytes(const DistanceAttentionBackwardArgs&);
}  // namespace cpu

namespace cuda {
// The same on a GPU; they depend only on the shapes.
std::size_t distance_attention_scratch_bytes(const DistanceAttentionArgs&);
std::size_t distance_attention_scratch_bytes(const DistanceAttentionBackwardArgs&);
}  // namespace cuda

}  // namespace longstride::kernels
