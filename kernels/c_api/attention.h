// Attention of Longstride for callers in C: every pattern and integration of a recipe, forward and backward, on the CPU
// or a CUDA stream. The library is longstride_attention; this header is C99, and C++.
//
//     plan = longstride_attention_create(...)          checks everything that does not change from call to call
//     longstride_attention_memory(plan, ...)           bytes that the caller provides
//     longstride_attention_forward(plan, ...)          o and lse from q, k and v
//     longstride_attention_backward(plan, ...)         dq, dk and dv from those and dout
//     longstride_attention_destroy(plan)
//
// All memory of tensors is the caller's. Nothing on a GPU is allocated or waited for, so calls can be captured in a
// CUDA graph. A plan does not change: threads may use one at the same time, each with scratch of its own. On the CPU a
// child that was forked after a call must call omp_set_num_threads(1) first.
//
// Every struct begins with struct_bytes, its size, so that a later version may add members at its end: write
// `struct longstride_pattern pattern = {.struct_bytes = sizeof pattern}`. Members that are left out are then 0, and so
// are those that the header of a caller's version does not have.
#ifndef LONGSTRIDE_ATTENTION_H
#define LONGSTRIDE_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

// Results of a call. After any other than LONGSTRIDE_OK, longstride_last_error() says in a sentence what is wrong.
// After INVALID, UNSUPPORTED and OUT_OF_MEMORY nothing has been written.
enum longstride_status {
  LONGSTRIDE_OK = 0,
  LONGSTRIDE_INVALID = 1,         // an argument is not allowed
  LONGSTRIDE_UNSUPPORTED = 2,     // this build has no kernels for the device
  LONGSTRIDE_OUT_OF_MEMORY = 3,   // the host's memory
  LONGSTRIDE_DEVICE_FAILED = 4,   // CUDA reported an error; results are undefined
  LONGSTRIDE_INTERNAL_ERROR = 5,  // a mistake in Longstride
};

// The message of this thread's last failed call; empty if none has failed. Valid until another call of this thread
// fails.
const char* longstride_last_error(void);
// "0.1.0"
const char* longstride_version(void);
// 1 if this build has kernels for CUDA, else 0.
int longstride_has_cuda(void);

enum longstride_device { LONGSTRIDE_CPU = 0, LONGSTRIDE_CUDA_DEVICE = 1 };

// The CPU computes in f32 and f64, a GPU in f32, bf16 and f16 with scores and softmax in f32.
enum longstride_dtype { LONGSTRIDE_F32 = 0, LONGSTRIDE_F64 = 1, LONGSTRIDE_BF16 = 2, LONGSTRIDE_F16 = 3 };

// Which positions attend to which: the keys of `model.attention` in a recipe, with the same names and meanings.
struct longstride_pattern {
  size_t struct_bytes;
  const char* integration;   // "interleaved", "merged" or "multihead"; null: interleaved
  const char* const* parts;  // each "dense", "local", "column", "fixed_block", "fixed_summary", "first",
                             // "block_window", "dilated" or "shifted_block"
  size_t part_count;
  int64_t stride;          // in positions; needed by column, fixed_block, fixed_summary, and local without a window
  int64_t window;          // in keys; 0: stride + 1; odd in both directions
  const int64_t* summary;  // in positions; one width, or one per head; needed by fixed_summary
  size_t summary_count;
  int32_t distinct_heads;     // 0 or 1
  int32_t summary_inclusive;  // 0 or 1
  int64_t layer;              // below 2^31; interleaved: the layer uses part layer mod part_count
  const char* direction;      // "past" or "both"; null: past
  int64_t first;              // in keys; needed by the part first
  int64_t block;              // in positions; needed by block_window
  int64_t blocks;             // into which shifted_block divides the positions
  const int64_t* shifts;      // heads with shift 0, 1, ...; they add up to heads; needed by shifted_block
  size_t shift_count;
  const int64_t* dilation;  // in positions; one distance, or one per head; needed by dilated
  size_t dilation_count;
};

// Bounds clamp the keys of a query, by arrays begin and end of (batch, bounds_heads, queries), which calls give: query
// i sees keys from begin_i to end_i - 1, none if end_i <= begin_i. Both are from 0 to n and never decrease along a row,
// which the CPU checks. On a GPU the caller promises it.
enum longstride_bounds {
  LONGSTRIDE_NO_BOUNDS = 0,
  LONGSTRIDE_INTERVALS = 1,  // any; on a GPU, kernels that search for the queries of a key compute the gradients
  LONGSTRIDE_DOCUMENTS = 2,  // where the document of position i begins and ends; documents follow each other
};

struct longstride_plan_config {
  size_t struct_bytes;
  const struct longstride_pattern* pattern;
  int64_t batch;         // sequences, 0 or more; at most 65,535 on a GPU
  int64_t n;             // positions of a sequence: rows of k and v, 1 to 2^24
  int64_t heads;         // 1 to 32,767
  int64_t key_size;      // elements of a head's q and k, 1 to 65,536; at most 128 on a GPU
  int64_t value_size;    // elements of a head's v and o, likewise
  double scale;          // multiplies scores; 0: 1 / sqrt(key_size)
  int32_t dtype;         // enum longstride_dtype, of all tensors but lse
  int32_t device;        // enum longstride_device
  int64_t queries;       // rows of q and o; 0: n. A pattern of the past takes n, or 1: the last position
  int32_t bounds;        // enum longstride_bounds
  int32_t sink;          // 1: calls give a sink
  int64_t bounds_heads;  // 1 or heads; 0: 1
  // Lists restrict a pattern of one dense part: query i sees key j only if the block of j, of `block` rows, is in the
  // list of i's block. For query block b these are entries key_begin_b to key_begin_(b+1) - 1 of keys, increasing, of
  // (list_batch, list_heads, ceil(queries / block) + 1) and (list_batch, list_heads, list_entries), which calls give.
  // The CPU checks them; on a GPU the caller promises it, and lists may be made there.
  int64_t block;         // a multiple of 64; 0: no lists
  int64_t list_batch;    // 1 or batch; 0: 1
  int64_t list_heads;    // 1 or heads; 0: 1
  int64_t list_entries;  // room for a head's
  // Labels of pairs (longstride_forward_call): c is 2 clip + 1, or with labels_from_end any positive number.
  int64_t labels;           // rows of the table: c, or 2 c with groups; 0: none; at most 65,536
  int32_t clip;             // in positions, 0 or more; 0 with labels_from_end
  int32_t labels_from_end;  // 1: labels are places, counted from the end of a query's interval
  int32_t label_groups;     // 1: calls give query_groups and key_groups
  int32_t shared_labels;    // 1: all heads read one table
  int64_t key_heads;        // of k and v; divides heads; 0: heads. Head h of q reads head h / (heads / key_heads)
};

// An attention plan.
struct longstride_plan;

// *plan is null if the call fails.
enum longstride_status longstride_attention_create(const struct longstride_plan_config* config,
                                                   struct longstride_plan** plan);
// Null does nothing. Work on a stream that uses the plan may still be running.
void longstride_attention_destroy(struct longstride_plan* plan);

// Bytes. On the CPU scratch grows with the number of OpenMP's threads at the time of the call.
struct longstride_memory {
  size_t struct_bytes;
  size_t lse;               // kept from forward to backward
  size_t forward_scratch;   // may be 0
  size_t backward_scratch;  //
};
enum longstride_status longstride_attention_memory(const struct longstride_plan* plan,
                                                   struct longstride_memory* memory);

// A tensor (batch, n, key_heads, size), of queries and heads instead for q and o, by strides in elements; those of the
// last dimension follow each other. All values must be finite, also those of keys that the pattern forbids, because
// tiles multiply them by zero. On a GPU strides that are multiples of 16 bytes and pointers aligned to 16 bytes are
// fast.
struct longstride_input {
  const void* data;
  int64_t batch_stride, position_stride, head_stride;  // not negative
};
// No two elements share memory, nor does an output with another argument.
struct longstride_output {
  void* data;
  int64_t batch_stride, position_stride, head_stride;
};

// o_i = sum_j softmax_j(scale q_i . k_j) v_j over the keys j that pattern, bounds and lists allow i. A sink s_h, of
// each head, adds exp(s_h) to the softmax's denominator. A row that may attend to nothing gets o = 0, and lse = s_h or
// without a sink -infinity.
//
// Labels add rows of a table A to keys: scores are scale q_i . (k_j + A[label_ij]). The label is the clipped distance
// min(max(j - i, -clip), clip) + clip, or with labels_from_end min(end_i - 1 - j, c - 1), where the end is that of i's
// interval, whatever lists say, counted by entries of each part of the pattern if it skips some; plus c where the
// groups of i and j differ.
struct longstride_forward_call {
  size_t struct_bytes;
  struct longstride_input q, k;     // key_size
  struct longstride_input v;        // value_size
  struct longstride_output o;       // value_size
  void* lse;                        // (batch, heads, queries) contiguous; f64 next to f64, else f32
  void* scratch;                    // aligned to 64 bytes; may be null if there is none
  size_t scratch_bytes;             // at least forward_scratch
  void* stream;                     // cudaStream_t of the current device; null: the default one. Unused on the CPU
  const int32_t *begin, *end;       // (batch, bounds_heads, queries); null without bounds
  const void* sink;                 // (heads), of lse's type, finite; null without one
  const int32_t *key_begin, *keys;  // null without lists
  const void* table;                // (labels, heads or 1, key_size) contiguous, of q's type; null without labels
  const int32_t *query_groups, *key_groups;  // (batch, queries) and (batch, n), any numbers; null without groups
};
enum longstride_status longstride_attention_forward(const struct longstride_plan* plan,
                                                    const struct longstride_forward_call* call);

// Overwrites dq, dk and dv, and adds to dsink and dtable. A row that may attend to nothing has no gradient.
struct longstride_backward_call {
  size_t struct_bytes;
  struct longstride_input q, k, v;
  struct longstride_input o;        // from forward
  const void* lse;                  // from forward
  struct longstride_input dout;     // the gradient of o
  struct longstride_output dq, dk;  // key_size
  struct longstride_output dv;      // value_size
  void* scratch;                    // aligned to 64 bytes
  size_t scratch_bytes;             // at least backward_scratch
  void* stream;                     // as above
  const int32_t *begin, *end;       // as in forward, like the sink
  const void* sink;                 //
  void* dsink;                      // like the sink; null: not wanted
  const int32_t *key_begin, *keys;  // as in forward
  const void* table;                // as in forward, like the groups
  const int32_t *query_groups, *key_groups;
  void* dtable;  // like the table, of lse's type; null: not wanted
};
enum longstride_status longstride_attention_backward(const struct longstride_plan* plan,
                                                     const struct longstride_backward_call* call);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
