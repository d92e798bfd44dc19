// Every CUDA call is checked here, and every kernel is launched here, inside an NVTX range of its name. A failure is a
// std::runtime_error that names the call; nothing is synchronised, so a fault inside a kernel surfaces at a later call.
#pragma once
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/base/op.h"

namespace longstride::kernels::cuda {

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

struct Grid {
  dim3 blocks = 1;
  dim3 threads = 1;
  std::size_t shared_bytes = 0;  // dynamic; more than 48 KiB requires allow_shared
  bool cooperative = false;      // all blocks run at once, or the launch fails
  unsigned cluster = 0;          // blocks per cluster, neighbours in x; 0: no clusters
};

inline cudaStream_t stream_of(const Launch& launch) { return static_cast<cudaStream_t>(launch.stream); }

// Allows `kernel` this much dynamic shared memory. Cheap; call it before every launch that needs it.
template <class Kernel>
void allow_shared(Kernel kernel, std::size_t bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        "cudaFuncSetAttribute");
}

// A grid without blocks has nothing to do, for example the keys of a part that a short sequence does not reach.
template <class... Parameters, class... Args>
void run(const char* name, void (*kernel)(Parameters...), const Grid& grid, const Launch& launch, Args&&... args) {
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return;
  nvtxRangePushA(name);
  cudaLaunchConfig_t config = {};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream_of(launch);
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (grid.cooperative) {
    attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
    attributes[config.numAttrs++].val.cooperative = 1;
  }
  if (grid.cluster > 0) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {grid.cluster, 1, 1};
  }
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
  nvtxRangePop();
  check(error, name);
}

}  // namespace longstride::kernels::cuda
