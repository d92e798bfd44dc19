// Attention for any GPU from compute capability 8.0: matrix products by mma.sync for bf16 and f16, plain fused
// multiply-adds for f32. Three kernels, each a loop over tiles:
//   forward  each query tile visits the key tiles of every part of a pass
//   dq       the same
//   dkdv     each key tile of a part visits its query tiles
// A later pass adds to the o and lse, or dq, of an earlier one, and a later part to dk and dv, in the order of launches
// on the CUDA stream: no atomics, so the same bits every time.
#pragma once
#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/choice.h"
#include "kernels/attention/pattern/block_lists.h"
#include "kernels/attention/pattern/row_bounds.h"
#include "kernels/attention/term/label_products.h"
#include "kernels/base/head_matrix.h"

namespace longstride::kernels::cuda::portable {

// Largest key and value size.
inline constexpr std::int64_t most_columns = 128;
// Rows of a tile of queries and of keys in the kernels for f32, and columns of a lane.
inline constexpr int plain_rows = 32, plain_vectors = most_columns / 32;

// A pass (dkdv: one part of a pass) of some heads, passed to kernels by value. Tiles follow from it by closed form
// (tile_span.h); nothing is copied to the device.
struct PortablePass : PassArgs<most_parts_of_pass> {
  using PassArgs::PassArgs;
  bool adds = false;  // to the results of earlier launches
};
struct PassGroup {
  static constexpr int most_passes = 16, most_heads = 48;  // parameters of a kernel have 4 KiB
  std::int32_t heads = 0, passes = 0;
  std::int16_t head[most_heads] = {}, key_head[most_heads] = {};  // key_head: that head[i] reads
  std::uint8_t pass_of[most_heads] = {};                          // index of the pass that head[i] has
  PortablePass pass[most_passes];
};

// The part of a call that does not depend on its term (kernels/attention/term).
struct Call {
  HeadMatrix q, k, v, o, dout, dq, dk, dv;
  float* lse = nullptr;
  const float* delta = nullptr;
  const float* sink = nullptr;  // (heads); null: none
  float scale = 1;
  std::int32_t n_q = 0, n_k = 0;  // rows of queries and of keys
  std::int32_t key_size = 0, value_size = 0, heads = 0, batch = 0;
  BoundsView bounds;
  ListsView lists;      // those of the query tiles, or of the key tiles in dkdv
  bool aligned = true;  // every row of every matrix is aligned to 16 bytes and a multiple of 16 bytes long
};
struct PlanCall : Call {
  PassGroup group;
};
struct LabelsCall : PlanCall {
  LabelRule rule;  // the first sequence's
  std::int32_t count = 0;
  const void* table = nullptr;
  std::int64_t table_label = 0, table_head = 0;  // strides in elements
  const float* products = nullptr;               // as LabelMatrices has them
  float* sums = nullptr;
};

// One launch each. T is __nv_bfloat16, __half or float.
template <class T>
void forward(const PlanCall&, const Launch&);
template <class T>
void dq(const PlanCall&, const Launch&);
template <class T>
void dkdv(const PlanCall&, const Launch&);
template <class T>
void forward(const LabelsCall&, const Launch&);
template <class T>
void dq(const LabelsCall&, const Launch&);  // adds to the call's sums
template <class T>
void dkdv(const LabelsCall&, const Launch&);

void attention(const AttentionArgs&, const Launch&);
void one_query(const AttentionArgs&, const OneQueryPlan&, const Launch&);
// delta as in sm90/attention_sm90.h; rows of dk and dv that are not keys of any part are already zero. by_label: the
// choice's scratch of sums.
void attention_backward(const AttentionBackwardArgs&, const float* delta, float* by_label, const Launch&);

}  // namespace longstride::kernels::cuda::portable
