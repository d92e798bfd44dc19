// Attention whose scores have a term of the distance, for callers in C: Transformer-XL's (Dai et al. 2019), with
// learned spans (Sukhbaatar et al. 2019), windows and dilation (Beltagy et al. 2020), and keys that precede the
// queries, such as a memory. Conventions, statuses and types of tensors are those of attention.h, and so is the
// library.
//
// Query i is at position p = keys - queries + i of the keys. With t = p - j, its score with key j is
//
//   s_ij = scale [(q_i + u) . k_j + (q_i + w) . T[min(t, distances - 1)]]
//   P_ij = f(t) exp(s_ij) / sum_j f(t) exp(s_ij),   o_i = sum_j P_ij v_j
//
// over the keys j = p - m dilation >= first_key with 0 <= m < window, for which f(t) = min((ramp + span longest_span -
// t) / ramp, 1) is at least 1/1024; f is 1 without spans. u is the content_bias, w the position_bias, T the table.
#ifndef LONGSTRIDE_DISTANCE_H
#define LONGSTRIDE_DISTANCE_H

#include "attention.h"  // a bare name: both headers are installed in one folder

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

// Settings of both calls. "exact" is f64 next to f64, else f32.
struct longstride_distance_config {
  size_t struct_bytes;
  int64_t batch;            // sequences
  int64_t queries;          // positions of q, the last of the keys
  int64_t keys;             // positions of k and v; below 2^24
  int64_t heads;            // at most 128 on a GPU
  int64_t key_size;         // elements of a head's q and k; at most 128 on a GPU
  int64_t value_size;       // elements of a head's v and o; at most 128 on a GPU
  double scale;             // multiplies scores; 0: 1 / sqrt(key_size)
  int32_t dtype;            // enum longstride_dtype
  int32_t device;           // enum longstride_device
  int64_t distances;        // rows of T, of distances 0, 1, ...; 0: no term of the distance
  int32_t shared_table;     // 1: all heads read one T
  int32_t content_bias;     // 1: calls give u
  int32_t position_bias;    // 1: calls give w, which needs a table
  int32_t first_keys;       // 1: calls give first_key
  int32_t without_self;     // 1: no query attends to its own position: m begins at 1
  int64_t window;           // in keys, the query's own position included; 0: all keys
  double longest_span;      // in positions; 0: no spans
  double ramp;              // positions over which a weight falls from 1 to 0
  const int64_t* dilation;  // one per head
  size_t dilation_count;    // 0, which is 1 for every head, or heads
};

struct longstride_distance_plan;

// *plan is null if the call fails.
enum longstride_status longstride_distance_create(const struct longstride_distance_config* config,
                                                  struct longstride_distance_plan** plan);
// Null does nothing.
void longstride_distance_destroy(struct longstride_distance_plan* plan);
// As longstride_attention_memory. With a table, 16-bit types and heads of 33 to 64 elements, backward_scratch on a GPU
// holds probabilities and gradients of scores: about 4 GiB, or what one head of one sequence takes if that is more.
enum longstride_status longstride_distance_memory(const struct longstride_distance_plan* plan,
                                                  struct longstride_memory* memory);

// Operands of the scores. Arrays are contiguous; those that the plan does not have are null.
struct longstride_distance_scores {
  struct longstride_input q;  // (batch, queries, heads, key_size)
  struct longstride_input k;  // (batch, keys, heads, key_size)
  const void* table;          // (distances, heads or 1, key_size), dtype
  const void* content_bias;   // (heads, key_size), exact
  const void* position_bias;  // (heads, key_size), exact
  const void* span;           // (heads), exact, usually from 0 to 1
  const int32_t* first_key;   // (batch): a sequence's keys before it are hidden, but must be finite
};

// A row without a key gets o = 0 and lse = -infinity.
struct longstride_distance_forward_call {
  size_t struct_bytes;
  struct longstride_distance_scores scores;
  struct longstride_input v;   // (batch, keys, heads, value_size)
  struct longstride_output o;  // (batch, queries, heads, value_size)
  void* lse;                   // (batch, heads, queries) contiguous, exact
  void* scratch;               // aligned to 64 bytes; may be null if there is none
  size_t scratch_bytes;        // at least forward_scratch
  void* stream;                // as in longstride_forward_call
};
enum longstride_status longstride_distance_forward(const struct longstride_distance_plan* plan,
                                                   const struct longstride_distance_forward_call* call);

// Overwrites dq, dk and dv. Adds to the gradients of table, biases and spans; a null one is left out.
struct longstride_distance_backward_call {
  size_t struct_bytes;
  struct longstride_distance_scores scores;
  struct longstride_input v;
  struct longstride_input o;        // from forward
  const void* lse;                  // from forward
  struct longstride_input dout;     // the gradient of o
  struct longstride_output dq, dk;  // key_size
  struct longstride_output dv;      // value_size
  void* dtable;                     // as the table, but exact
  void* dcontent_bias;              // (heads, key_size), exact, like the next
  void* dposition_bias;             //
  void* dspan;                      // (heads), exact
  void* scratch;                    // aligned to 64 bytes
  size_t scratch_bytes;             // at least backward_scratch
  void* stream;
};
enum longstride_status longstride_distance_backward(const struct longstride_distance_plan* plan,
                                                    const struct longstride_distance_backward_call* call);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
