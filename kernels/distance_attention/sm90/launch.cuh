// Launches a persistent kernel: as many blocks as multiprocessors, at most one per group of tiles.
#pragma once
#include <algorithm>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_types.cuh"
#include "kernels/base/gpu_kind.h"
#include "kernels/distance_attention/sm90/tiles.cuh"

namespace longstride::kernels::cuda::distance::hopper {

template <class T>
void run_groups(const char* name, void (*kernel)(Problem), std::size_t shared_bytes, const Call& call,
                std::int32_t tiles, const Launch& launch) {
  const std::int64_t groups =
      static_cast<std::int64_t>((tiles + warpgroups - 1) / warpgroups) * call.heads * call.batch;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(groups, multiprocessors()));
  allow_shared(kernel, shared_bytes);
  run(name, kernel, {blocks, threads, shared_bytes}, launch, problem_of(call, DtypeOf<T>::value));
}

}  // namespace longstride::kernels::cuda::distance::hopper
