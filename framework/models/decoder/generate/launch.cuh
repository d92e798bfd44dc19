// The kernel on the whole grid and its launch, included once per type.
#pragma once
#include "framework/models/decoder/generate/grid_generator.cuh"
#include "kernels/base/cuda_launch.cuh"

namespace longstride::generation {

template <class T, bool transforms>
__global__ void __launch_bounds__(threads, 1)
    generate_kernel(const __grid_constant__ GenerationProblem problem, const __grid_constant__ PositionSpan span) {
  extern __shared__ __align__(16) char shared[];
  GridGenerator<T, transforms>(problem, span, shared).run();
}

template <class T>
void launch_generate(const GenerationProblem& problem, const PositionSpan& span, int blocks, std::size_t shared_bytes,
                     const Launch& launch) {
  const auto kernel = problem.heads.transformed ? generate_kernel<T, true> : generate_kernel<T, false>;
  allow_shared(kernel, shared_bytes);
  Grid grid{static_cast<unsigned>(blocks), threads, shared_bytes};
  grid.cooperative = true;
  kernels::cuda::run("generate", kernel, grid, launch, problem, span);
}

}  // namespace longstride::generation
