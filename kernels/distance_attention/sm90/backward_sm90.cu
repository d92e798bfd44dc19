// The gradients on Hopper, kernel by kernel. With a table dq saves what the others would have to compute again, of as
// many units at a time as there is room for.
#include <algorithm>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_types.cuh"
#include "kernels/distance_attention/sm90/problem.h"

namespace longstride::kernels::cuda::distance::sm90 {
namespace {

// Calls f with a problem's units, as many at a time as dq may save.
template <class F>
void in_parts(const Problem& problem, F&& f) {
  Problem part = problem;
  const std::int32_t most = problem.call.probabilities != nullptr ? problem.call.saved_units : problem.units;
  for (; part.first_unit < problem.units; part.first_unit += part.units) {
    part.units = std::min(most, problem.units - part.first_unit);
    f(part);
  }
}

// With dilation, heads have fewer tiles than there is room for.
void clear_unused_sums(const Call& call, const Launch& launch) {
  if (std::all_of(call.step, call.step + call.heads, [](std::int32_t step) { return step == 1; })) return;
  const std::size_t rows = static_cast<std::size_t>(call.batch) * static_cast<std::size_t>(call.heads) *
                           static_cast<std::size_t>(call.query_tiles);
  check(cudaMemsetAsync(call.bias_sums, 0, rows * static_cast<std::size_t>(2 * call.size + 1) * sizeof(float),
                        stream_of(launch)),
        "cudaMemsetAsync");
}

}  // namespace

template <class T>
void backward(const Call& call, const Launch& launch) {
  clear_unused_sums(call, launch);
  for (const Problem& problem : problems_of(call, DtypeOf<T>::value))
    in_parts(problem, [&](const Problem& part) {
      dq<T>(part, launch);
      if (call.score_gradients != nullptr) dtable<T>(part, launch);
      call.probabilities != nullptr ? dkdv_of_saved<T>(part, launch) : dkdv<T>(part, launch);
    });
}
template void backward<__nv_bfloat16>(const Call&, const Launch&);
template void backward<__half>(const Call&, const Launch&);

}  // namespace longstride::kernels::cuda::distance::sm90
