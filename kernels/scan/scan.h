// Linear attention as one scan with a decay. A head has a state S, a matrix (key size, columns), and with the decay a_t
//   R_t = a_t S_{t-1},   S_t = R_t + k_t u_t^T,   o_t = S_t^T q_t
//   sum     a_t = 1, u_t = v_t           linear attention (Katharopoulos et al. 2020), the Performer
//   gated   u_t = v_t                    SSD, gated linear attention; the causal Performer, whose stabiliser is a decay
//   delta   u_t = b_t (v_t - R_t^T k_t)  the gated delta rule: S_t = (I - b_t k_t k_t^T) a_t S_{t-1} + b_t k_t v_t^T
// a_t is a number per head or per channel of the keys. Normalised, o_t is divided by q_t . z_t, z_t = a_t z_{t-1} +
// k_t: z is one more column of S, whose values are 1; o = 0 where the denominator is 0. In both directions o_t reads
// the last S of its group. Features of q and k are computed by the caller: here they are only rows.
//
// The CPU is the specification: it advances the state position by position, so no exponent is positive and no decay is
// divided by. The backward pass starts again from the state before every chunk. GPUs compute chunks as products of
// matrices (scan_call.h); there decay and beta are not checked, and delta, which solves a system per chunk, is less
// exact than the recurrence where keys have few channels and so are alike.
#pragma once
#include "kernels/attention/pattern/pattern.h"
#include "kernels/base/op.h"

namespace longstride::kernels {

enum class ScanForm : std::uint8_t { sum, gated, delta };

inline constexpr std::int64_t scan_chunk = 128;
inline std::int64_t scan_chunks(std::int64_t n) { return (n + scan_chunk - 1) / scan_chunk; }

// The sizes that kernels are chosen from; a unit is a head of a sequence, and channels have a decay each.
struct ScanProblem {
  ScanForm form;
  Direction direction;
  Dtype dtype;
  bool channels;
  std::int64_t units, n, key_size, value_size, run = 0;
};
template <class Args>
ScanProblem problem_of(const Args& args) {
  const Tensor& q = args.q;
  return {args.form, args.direction, q.dtype(), args.decay.rank() == 4, q.size(0) * q.size(2), q.size(1),
          q.size(3), args.v.size(3), args.run};
}
// Positions per saved state, a multiple of scan_chunk, and the states of a unit.
std::int64_t scan_run(Device device, const ScanProblem& problem);
inline std::int64_t scan_states(Device device, const ScanProblem& problem) {
  const std::int64_t run = scan_run(device, problem);
  return (problem.n + run - 1) / run;
}

// On the CPU all tensors but `begin` are f32 or all f64. On a GPU q, k, v, o and their gradients are f32, bf16 or f16,
// and all others f32; products are of 16-bit numbers where q is. C columns = value size, + 1 where o is normalised.
struct ScanArgs {
  ScanForm form;
  Tensor q, k;               // (batch, n, heads, key size), any strides but the last
  Tensor v;                  // (batch, n, heads, value size), any strides but the last
  Tensor o;                  // like v, written
  Tensor decay = {};         // logarithms of a, at most 0, contiguous: (batch, n, heads), or with a last dimension key
                             // size; gated needs them, delta may have them; above 0 or NaN: InternalError
  Tensor beta = {};          // b of delta, from 0 to 2, (batch, n, heads), contiguous; others: InternalError
  Tensor begin = {};         // (batch, 1, n) i32, as group_bounds gives: S is cleared where a group begins, but for the
                             // first of a row, which continues first_state
  Tensor denominator = {};   // (batch, heads, n) contiguous, written; given: o is normalised
  Tensor first_state = {};   // (batch, heads, key size, C) contiguous; none: 0
  Tensor last_state = {};    // the same, written; may be first_state
  Tensor chunk_states = {};  // (batch heads, scan_states, key size, C) contiguous, written: S before every scan_run
  Direction direction = Direction::past;  // both: only sum, without states
  std::int64_t run = 0;                   // scan_run where walks compute (choice.h), 128, 256 or 512; 0: chosen
  Tensor scratch = {};

  void check(Device device) const;
  Tensor scratch_on(Device device) const;
  Cost cost() const {
    const double states = static_cast<double>(q.count()) * static_cast<double>(v.size(3));
    return {WorkKind::attention_forward, bytes_of(q, k, v, o, decay, beta, chunk_states), 4 * states};
  }
};
LONGSTRIDE_OP(scan, ScanArgs)

struct ScanBackwardArgs {
  ScanForm form;
  Tensor q, k, v;
  Tensor o = {};  // where it is normalised
  Tensor decay = {}, beta = {}, begin = {}, denominator = {};
  Tensor chunk_states = {};  // but in both directions
  Tensor dout;               // like o
  Tensor dlast_state = {};   // gradient of last_state; none: 0
  Tensor dq, dk, dv;         // like q, k, v, written
  Tensor ddecay = {};        // like decay, of whose logarithms it is the gradient, written; none: of (batch, n, heads)
  Tensor dbeta = {};         // like beta, written
  Tensor dfirst_state = {};  // like first_state, written; may be dlast_state
  Direction direction = Direction::past;
  std::int64_t run = 0;  // forward's
  Tensor scratch = {};

  void check(Device device) const;
  Tensor scratch_on(Device device) const;
  Cost cost() const {
    const double states = static_cast<double>(q.count()) * static_cast<double>(v.size(3));
    return {WorkKind::attention_backward, bytes_of(q, k, v, decay, beta, chunk_states, dout, dq, dk, dv), 10 * states};
  }
};
LONGSTRIDE_OP(scan_backward, ScanBackwardArgs)

}  // namespace longstride::kernels
