// gemm with Epilogue::bias_gelu or gelu_backward in one kernel, on Hopper: the product's result does not travel to
// memory and back for the activation. The bits of c and activated are those of the product and the pass after it.
#pragma once
#include "kernels/gemm/gemm.h"

namespace longstride::kernels::cuda::sm90 {

// 16-bit types, a depth that leaves room for a panel of b, whole panels of columns and many rows.
bool supports_gelu(const GemmArgs& args);
void gemm_gelu(const GemmArgs& args, const Launch& launch);

}  // namespace longstride::kernels::cuda::sm90
