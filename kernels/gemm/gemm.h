// c = a b, with an epilogue applied to each block of c while it is still in cache:
//   none           c = a b                        (+ c when accumulate)
//   bias           c = a b + bias
//   bias_gelu      c = a b + bias,  activated = gelu(c)
//   gelu_backward  c = (a b) gelu'(activated)     the gradient before the activation; `activated` holds its input.
//                  column_sums += sums over the rows of c: the gradient of the bias before the activation
// Transposes are strides: of each of a and b, one stride is 1.
// With Epilogue::none a, b and c may be stacks of so many matrices, products by themselves: views of three dimensions.
//
// On the CPU all views are of one type. On a GPU a and b are of one type, c of theirs or f32, bias and activated of
// c's; sums are f32 throughout, and never TF32.
#pragma once
#include "kernels/base/row_chunks.h"
#include "kernels/base/view.h"

namespace longstride::kernels {

enum class Epilogue : std::uint8_t { none, bias, bias_gelu, gelu_backward };

struct GemmArgs {
  View a;            // (rows, depth)
  View b;            // (depth, columns)
  View c;            // (rows, columns), last dimension dense
  View bias;         // (columns), for bias and bias_gelu
  View activated;    // (rows, columns), last dimension dense, for bias_gelu and gelu_backward; may be c for bias_gelu
  View column_sums;  // (columns), for gelu_backward; may be absent. f32 on a GPU
  View partials;     // (row_chunks(rows).chunks, columns), row_chunks of cpu or cuda: workspace for column_sums
  Epilogue epilogue = Epilogue::none;
  bool accumulate = false;  // only with Epilogue::none
};

namespace cpu {
void gemm(const GemmArgs&, const Launch&);
}
namespace cuda {
void gemm(const GemmArgs&, const Launch&);
}

}  // namespace longstride::kernels
