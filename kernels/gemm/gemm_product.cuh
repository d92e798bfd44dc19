// The product of gemm by cuBLASLt: c = a b, + c when args.accumulate, + args.bias when add_bias.
//
// The algorithm is the library's own favourite, or, once the product was called with launch.rehearsal, the fastest of
// those that give the favourite's bits; it is remembered for every product of that shape and those types.
#pragma once
#include "kernels/gemm/gemm.h"

namespace longstride::kernels::cuda {

void multiply(const GemmArgs& args, bool add_bias, const Launch& launch);

}  // namespace longstride::kernels::cuda
