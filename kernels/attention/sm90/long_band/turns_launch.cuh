// Shared by the launches of the kernel that sums dQ in turns.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/attention/sm90/attention_sm90.h"
#include "kernels/attention/sm90/band/band_backward_launch.cuh"
#include "kernels/attention/sm90/long_band/turns_kernel.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_types.cuh"
#include "kernels/base/gpu_kind.h"

namespace longstride::kernels::cuda::sm90 {

// Calls f with what heads are padded to, as a std::integral_constant.
template <class F>
void with_turns_head(std::int32_t head, const F& f) {
  if (head <= 32) return f(std::integral_constant<int, 32>{});
  if (head <= 64) return f(std::integral_constant<int, 64>{});
  f(std::integral_constant<int, 128>{});
}

// Runs `tasks` tasks of each of the plan's classes. `problem` has what a Task adds to TurnProblem.
template <class Task, int Size>
void launch_turns(const char* name, const AttentionBackwardArgs& args, const LongBandPlan& plan, std::int32_t tasks,
                  const float* delta, std::byte* scratch, const Launch& launch, typename Task::Problem& problem) {
  fill_problem(args, plan.band, Size, Size, problem);
  const auto lanes = static_cast<std::uint32_t>(plan.ring.lanes);
  problem.ring = plan.ring;
  problem.groups = plan.groups;
  problem.tasks = static_cast<std::uint32_t>(plan.classes * tasks);
  problem.group_tasks = lanes * static_cast<std::uint32_t>(tasks);
  problem.last_lanes = static_cast<std::uint32_t>(plan.classes) - static_cast<std::uint32_t>(plan.groups - 1) * lanes;
  problem.delta = delta;
  problem.sums = reinterpret_cast<float*>(scratch);
  problem.counters = reinterpret_cast<unsigned*>(scratch + plan.sums_bytes());
  problem.tasks_taken = problem.counters + plan.slots();
  check(cudaMemsetAsync(problem.counters, 0, plan.counter_bytes(), stream_of(launch)), "cudaMemsetAsync");
  const unsigned blocks = std::min(problem.tasks, static_cast<std::uint32_t>(multiprocessors()));
  with_gpu_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>) {
      using Kernel = BackwardTurns<T, Task, Size>;
      const auto kernel = backward_turns<T, Task, Size>;
      allow_shared(kernel, Kernel::shared_bytes);
      run(name, kernel, {blocks, Kernel::block_threads, Kernel::shared_bytes}, launch, problem);
    }
  });
}

}  // namespace longstride::kernels::cuda::sm90
