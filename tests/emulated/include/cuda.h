// Stands in for CUDA's header where a kernel's source is compiled for the CPU (tests/emulated/machine/block.h).
#pragma once
#include <cstdint>

// A tensor that the TMA copies boxes of, readable, as tensor_map (kernels/gpu/tensor_map.h) describes it.
struct CUtensorMap {
  void* data;
  std::int64_t size[5], stride[4];
  std::int32_t columns, box[4];
};
