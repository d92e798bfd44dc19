// gemm with Epilogue::none or bias, with an addend or without, by panels (panel.cuh) on Hopper. It is the faster one
// where many rows meet little depth and at least as many columns, so that storing takes as long as multiplying. The
// bits are those of the library's algorithms that do not split the depth: products of 16 in depth one after the other,
// then the addend, then the bias, rounded once.
#pragma once
#include "kernels/gemm/gemm.h"

namespace longstride::kernels::cuda::sm90 {

// True for matrices of one 16-bit type that TMA can copy, whole panels of columns and many rows.
bool supports_panels(const GemmArgs& args);
void gemm_panels(const GemmArgs& args, const Launch& launch);

}  // namespace longstride::kernels::cuda::sm90
