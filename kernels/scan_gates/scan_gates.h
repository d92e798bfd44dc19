// The numbers that steer a scan (kernels/scan), per position and column (head, or channel of the keys), from products
// x:
//   softplus     y = -exp(rate) softplus(x + bias)   log a of SSD and of the gated delta rule (Dao and Gu 2024)
//   step         y = softplus(x + bias)              by which values count in SSD, and in its log a
//   log_sigmoid  y = factor log sigmoid(x + bias)    log a of gated linear attention, factor 1/16 (Yang et al. 2024)
//   sigmoid      y = factor sigmoid(x)               b of the delta rule, factor 1, or 2 for negative eigenvalues
// The backward pass overwrites dx; drate and dbias accumulate, in an order that does not depend on the threads.
#pragma once
#include "kernels/base/op.h"
#include "kernels/base/row_chunks.h"

namespace longstride::kernels {

enum class ScanGate : std::uint8_t { softplus, step, log_sigmoid, sigmoid };

struct ScanGatesArgs {
  ScanGate gate;
  Tensor x;          // (..., columns) contiguous, f32 or f64 on the CPU; bf16, f16 or f32 on a GPU
  Tensor y;          // like x, of the exact type, written
  Tensor rate = {};  // (columns) exact; softplus alone
  Tensor bias = {};  // (columns) exact; all but sigmoid
  double factor = 1;

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(x, y), 0}; }
};
LONGSTRIDE_OP(scan_gates, ScanGatesArgs)

struct ScanGatesBackwardArgs {
  ScanGate gate;
  Tensor dy;  // like y
  Tensor x;
  Tensor dx;  // like x, written
  Tensor rate = {}, bias = {};
  Tensor drate = {}, dbias = {};  // like rate and bias, added to
  double factor = 1;
  Tensor scratch = {};

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(dy, x, dx), 0}; }
  Tensor scratch_on(Device device) const {
    if (!bias.given()) return {};
    const std::int64_t columns = x.size(-1);
    return {nullptr, dy.dtype(), {row_chunks(device, x.count() / columns).chunks, 2, columns}};
  }
};
LONGSTRIDE_OP(scan_gates_backward, ScanGatesBackwardArgs)

}  // namespace longstride::kernels
