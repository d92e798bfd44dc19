// c = a b, with an epilogue applied to each block of c while it is still in cache:
//   none           c = a b                        (+ c when accumulate)
//   bias           c = a b + bias
//   bias_gelu      c = a b + bias,  activated = gelu(c)
//   gelu_backward  c = (a b) gelu'(activated)     the gradient before the activation; `activated` holds its input.
//                  column_sums += sums over the rows of c: the gradient of the bias before the activation
//   bias_relu      c = max(a b + bias, 0)
//   relu_backward  c = a b where activated > 0, else 0; `activated` holds the activation's output or its input.
//                  column_sums as above
// With none and bias another matrix may be added as well, before the only rounding: c = a b + bias + addend.
// Transposes are expressed by strides: one stride of a must be 1, and one of b.
// With Epilogue::none a, b and c may be stacks of matrices (rank 3): one independent product per matrix.
//
// On the CPU all tensors have one type. On a GPU a and b have one type, c has theirs or f32, bias and activated have
// c's; sums are always f32, never TF32.
// With scales a and b are of 8 bits instead (kernels/quantise), and element (r, j) of a b is multiplied by a_scales[r]
// b_scales[j] before anything is added. On a GPU c is then bf16, and sums inside the product are those of the tensor
// cores for 8-bit operands, promoted to f32 at intervals.
#pragma once
#include "kernels/base/op.h"
#include "kernels/base/row_chunks.h"

namespace longstride::kernels {

enum class Epilogue : std::uint8_t { none, bias, bias_gelu, gelu_backward, bias_relu, relu_backward };

// True if c is the gradient before an activation.
constexpr bool is_backward(Epilogue e) { return e == Epilogue::gelu_backward || e == Epilogue::relu_backward; }
// True if the epilogue adds a bias.
constexpr bool adds_bias(Epilogue e) {
  return e == Epilogue::bias || e == Epilogue::bias_gelu || e == Epilogue::bias_relu;
}

struct GemmArgs {
  Tensor a;                 // (rows, depth)
  Tensor b;                 // (depth, columns)
  Tensor c;                 // (rows, columns), last dimension dense
  Tensor bias = {};         // (columns), if adds_bias(epilogue)
  Tensor activated = {};    // (rows, columns), last dimension dense, for bias_gelu and if is_backward(epilogue); may be
                            // c only for bias_gelu
  Tensor column_sums = {};  // (columns), if is_backward(epilogue); may be absent. f32 on a GPU
  Tensor addend = {};       // (rows, columns) of c's type, last dimension dense; may be absent, may not be c. With
                            // Epilogue::none or bias, no stack
  Tensor a_scales = {};     // (rows) f32, and
  Tensor b_scales = {};  // (columns) f32: a (rows, depth) and b are then e4m3 or e5m2, not both e5m2, and dense along
                         // depth. No stack, no accumulate; c is contiguous with Epilogue::bias_relu
  Tensor scratch = {};
  Epilogue epilogue = Epilogue::none;
  bool accumulate = false;  // only with Epilogue::none

  void check(Device device) const;
  Tensor scratch_on(Device device) const {
    if (!column_sums.given()) return {};
    return {nullptr, column_sums.dtype(), {row_chunks(device, c.size(0)).chunks, c.size(1)}};
  }
};

LONGSTRIDE_OP(gemm, GemmArgs)

}  // namespace longstride::kernels
