// gemm with Epilogue::bias_gelu, gelu_backward or relu_backward in one kernel on Hopper, which saves the product a
// round trip through memory before the activation. c and activated are bit-identical to a product followed by a
// separate pass.
#pragma once
#include "kernels/gemm/gemm.h"

namespace longstride::kernels::cuda::sm90 {

// True for 16-bit types, a depth that leaves room for a panel of b, whole panels of columns and many rows.
bool supports_fused(const GemmArgs& args);
void gemm_fused(const GemmArgs& args, const Launch& launch);

}  // namespace longstride::kernels::cuda::sm90
