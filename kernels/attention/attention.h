// o_i = sum_j softmax_j(scale q_i . k_j) v_j over the keys j that the plan allows i (Eq. 2 to 8), in tiles with an
// online softmax (Dao et al. 2022): no n x n matrix, and no tile without an allowed pair is touched.
//
// The result does not depend on the number of threads, bit for bit. A row that may attend to nothing gets o = 0,
// lse = -infinity and no gradient.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/attention/pattern/plan.h"
#include "kernels/base/view.h"

namespace longstride::kernels {

// Which CUDA kernels to use. `automatic` takes Hopper's own where the GPU and the shapes allow it. All meet the same
// tolerance; each is deterministic.
enum class AttentionPath : std::uint8_t { automatic, sm90, portable };

// Views of rank 4 are (batch, n, heads, size) with any strides, except that the last is 1. All have one type: f32 or
// f64 on the CPU; bf16, f16 or f32 on the GPU, where scores and softmax are f32.
struct AttentionArgs {
  const AttentionPlan* plan = nullptr;
  View q, k;  // key size
  View v;     // value size
  View o;     // value size, written
  View lse;   // (batch, heads, n) contiguous, written: log of the softmax's denominator; f32 on the GPU
  double scale = 1;
  void* workspace = nullptr;
  AttentionPath path = AttentionPath::automatic;
};

// Overwrites dq, dk and dv.
struct AttentionBackwardArgs {
  const AttentionPlan* plan = nullptr;
  View q, k, v, o, lse;  // as above, o and lse from forward
  View dout;             // like o
  View dq, dk, dv;       // like q, k, v
  double scale = 1;
  void* workspace = nullptr;
  AttentionPath path = AttentionPath::automatic;
};

namespace cpu {
// Bytes of workspace, a function of the shapes, the plan and the number of threads alone.
std::size_t attention_workspace_bytes(const AttentionArgs&);
std::size_t attention_workspace_bytes(const AttentionBackwardArgs&);
void attention(const AttentionArgs&, const Launch&);
void attention_backward(const AttentionBackwardArgs&, const Launch&);
}  // namespace cpu

namespace cuda {
std::size_t attention_workspace_bytes(const AttentionArgs&);
std::size_t attention_workspace_bytes(const AttentionBackwardArgs&);
void attention(const AttentionArgs&, const Launch&);
void attention_backward(const AttentionBackwardArgs&, const Launch&);
}  // namespace cuda

}  // namespace longstride::kernels
