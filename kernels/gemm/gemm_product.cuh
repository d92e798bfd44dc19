// The product of gemm by cuBLASLt or by panels (gemm_panels_sm90.h): c = a b, + c when args.accumulate, + args.addend
// if given, + args.bias if the epilogue adds one, and the ReLU of bias_relu, which the library has without scales. What
// else an epilogue does is left to the caller.
//
// The algorithm is the library's first choice or, after a call with launch.rehearsal, the fastest of the library's and
// of panels that gives the same bits as the first choice; it is remembered for every product of the same shape and
// types.
#pragma once
#include "kernels/gemm/gemm.h"

namespace longstride::kernels::cuda {

void multiply(const GemmArgs& args, const Launch& launch);

// The same by the library or by panels; false, and nothing is done, if the library does not support the product.
bool multiply_in_library(const GemmArgs& args, const Launch& launch);

// The pass after a product of 8-bit operands that the library cannot scale: c = c a_scales b_scales, + bias and addend
// if given. Scales are powers of two, so without those this is exact.
void scale_product(const GemmArgs& args, const Launch& launch);

}  // namespace longstride::kernels::cuda
