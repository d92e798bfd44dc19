// Attention backward on Hopper: for each pass of the heads, one launch for dQ and one a part for dK and dV, each adding
// to what the launches before it have written.
#include <algorithm>
#include <cstdint>

#include "kernels/attention/sm90/attention_sm90.h"
#include "kernels/attention/sm90/backward_problem.h"
#include "kernels/base/cuda_launch.cuh"

namespace longstride::kernels::cuda::sm90 {

namespace {

Gradient gradient_of(const View& view) {
  return {view.data, {view.stride[0], view.stride[1], view.stride[2]}, static_cast<std::int32_t>(view.size[3])};
}

// Zero in the rows of one head.
void clear(const View& view, std::int64_t head, const Launch& launch) {
  const std::size_t element = bytes_of(view.dtype), row = static_cast<std::size_t>(view.stride[1]) * element;
  for (std::int64_t sequence = 0; sequence < view.size[0]; ++sequence) {
    auto* const from =
        view.as<std::byte>() + static_cast<std::size_t>(sequence * view.stride[0] + head * view.stride[2]) * element;
    check(cudaMemset2DAsync(from, row, 0, static_cast<std::size_t>(view.size[3]) * element,
                            static_cast<std::size_t>(view.size[1]), stream_of(launch)),
          "cudaMemset2DAsync");
  }
}

// Summary rows are not all keys; where they are a head's first part, the launch for it adds to zero.
void clear_unreached(const AttentionBackwardArgs& args, const Launch& launch) {
  for (std::int64_t head = 0; head < args.q.size[2]; ++head) {
    const auto passes = args.plan->passes_of(head);
    if (passes.empty() || args.plan->parts_of(passes[0])[0].kind != PartKind::fixed_summary) continue;
    clear(args.dk, head, launch);
    clear(args.dv, head, launch);
  }
}

}  // namespace

void attention_backward(const AttentionBackwardArgs& args, const float* delta, const Launch& launch) {
  clear_unreached(args, launch);
  for (int number = 0; number < passes_in(*args.plan); ++number) {
    BackwardProblem problem = {};
    geometry_of(*args.plan, number, problem.geometry);
    problem.batch = static_cast<std::int32_t>(args.q.size[0]);
    problem.scale = static_cast<float>(args.scale);
    problem.lse = args.lse.as<float>();
    problem.delta = delta;
    problem.first = number == 0;
    problem.key_sized_gradient = gradient_of(args.dq);
    launch_backward_queries(args, problem, launch);
    problem.key_sized_gradient = gradient_of(args.dk);
    problem.value_sized_gradient = gradient_of(args.dv);
    int parts = 0;
    for (int p = 0; p < problem.geometry.passes; ++p) parts = std::max(parts, problem.geometry.pass[p].parts);
    for (problem.part = 0; problem.part < parts; ++problem.part) {
      launch_backward_keys(args, problem, launch);
      problem.first = false;
    }
  }
}

}  // namespace longstride::kernels::cuda::sm90
