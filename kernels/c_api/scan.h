// The scan of linear attention with a decay, for callers in C. Conventions, statuses and types of tensors are those of
// attention.h, and so is the library.
//
// A head has a state S, a matrix (key_size, columns). With the decay a_t from 0 to 1, a number or one per key channel,
//
//   R_t = a_t S_{t-1},   S_t = R_t + k_t u_t^T,   o_t = S_t^T q_t
//   sum     a_t = 1, u_t = v_t           linear attention (Katharopoulos et al. 2020)
//   gated   u_t = v_t                    SSD (Mamba-2), gated linear attention
//   delta   u_t = b_t (v_t - R_t^T k_t)  the gated delta rule
//
// Normalised, o_t is divided by q_t . z_t with z_t = a_t z_{t-1} + k_t, and is 0 where that is 0.
#ifndef LONGSTRIDE_SCAN_H
#define LONGSTRIDE_SCAN_H

#include "attention.h"  // a bare name: all headers are installed in one folder

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum longstride_scan_form { LONGSTRIDE_SUM = 0, LONGSTRIDE_GATED = 1, LONGSTRIDE_DELTA = 2 };
// The form gated needs a decay, sum has none.
enum longstride_scan_decay { LONGSTRIDE_NO_DECAY = 0, LONGSTRIDE_DECAY_PER_HEAD = 1, LONGSTRIDE_DECAY_PER_CHANNEL = 2 };

// Settings of both calls. "exact" is f64 next to f64, else f32. A state has `columns`: value_size, and where it is
// normalised one more, z.
struct longstride_scan_config {
  size_t struct_bytes;
  int64_t batch;         // sequences
  int64_t n;             // positions; at most 2^24
  int64_t heads;         //
  int64_t key_size;      // elements of a head's q and k
  int64_t value_size;    // elements of a head's v and o
  int32_t dtype;         // enum longstride_dtype
  int32_t device;        // enum longstride_device
  int32_t form;          // enum longstride_scan_form; calls of delta give beta
  int32_t decay;         // enum longstride_scan_decay; with one, calls give it
  int32_t normalised;    // 1: o is; not of delta
  int32_t both;          // 1: o_t reads the last S of its group, in both directions; only sum, without states
  int32_t groups;        // 1: calls give begin
  int32_t forward_only;  // 1: no backward follows, so calls keep nothing
};

struct longstride_scan_plan;

// *plan is null if the call fails.
enum longstride_status longstride_scan_create(const struct longstride_scan_config* config,
                                              struct longstride_scan_plan** plan);
// Null does nothing.
void longstride_scan_destroy(struct longstride_scan_plan* plan);

// As longstride_memory.
struct longstride_scan_bytes {
  size_t struct_bytes;
  size_t kept;  // from forward to backward: the states before every 128 positions, and denominators
  size_t forward_scratch;
  size_t backward_scratch;
};
enum longstride_status longstride_scan_memory(const struct longstride_scan_plan* plan,
                                              struct longstride_scan_bytes* memory);

// Arrays are contiguous; those that the plan does not have are null.
struct longstride_scan_inputs {
  struct longstride_input q, k;  // key_size
  struct longstride_input v;     // value_size
  const void* decay;     // logarithms of a, at most 0, exact: (batch, n, heads), or per channel (batch, n, heads,
                         // key_size). The CPU checks them, beta and begin; on a GPU the caller promises them
  const void* beta;      // b, from 0 to 2, exact: (batch, n, heads)
  const int32_t* begin;  // (batch, n): where the group of a position begins. S is cleared there, but at position 0
};

// States are contiguous, (batch, heads, key_size, columns), exact.
struct longstride_scan_forward_call {
  size_t struct_bytes;
  struct longstride_scan_inputs inputs;
  struct longstride_output o;  // value_size
  const void* first_state;     // S before position 0; null: 0
  void* last_state;            // S behind the last position; null: not wanted; may be first_state
  void* kept;                  // aligned to 64 bytes; may be null if it has no bytes
  void* scratch;               // aligned to 64 bytes; may be null if there is none
  size_t scratch_bytes;        // at least forward_scratch
  void* stream;                // as in longstride_forward_call
};
enum longstride_status longstride_scan_forward(const struct longstride_scan_plan* plan,
                                               const struct longstride_scan_forward_call* call);

// Overwrites all gradients.
struct longstride_scan_backward_call {
  size_t struct_bytes;
  struct longstride_scan_inputs inputs;
  struct longstride_input o;        // from forward, if it is normalised
  const void* kept;                 // from forward
  struct longstride_input dout;     // the gradient of o
  const void* dlast_state;          // the gradient of last_state; null: 0
  struct longstride_output dq, dk;  // key_size
  struct longstride_output dv;      // value_size
  void* ddecay;                     // like the decay, of the logarithms
  void* dbeta;                      // like beta
  void* dfirst_state;               // null: not wanted; may be dlast_state
  void* scratch;                    // aligned to 64 bytes
  size_t scratch_bytes;             // at least backward_scratch
  void* stream;
};
enum longstride_status longstride_scan_backward(const struct longstride_scan_plan* plan,
                                                const struct longstride_scan_backward_call* call);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
