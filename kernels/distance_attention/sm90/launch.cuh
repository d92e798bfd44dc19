// Launches a persistent kernel: as many blocks as multiprocessors, at most one per group of tiles.
#pragma once
#include <algorithm>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_types.cuh"
#include "kernels/base/gpu_kind.h"
#include "kernels/distance_attention/sm90/tiles.cuh"

namespace longstride::kernels::cuda::distance::sm90 {

// The parts that a kernel is compiled with. Spans without a table have no kernels of their own, because they cost
// little there.
template <bool Table_, bool Span_>
struct Form {
  static constexpr bool Table = Table_, Span = Span_;
};
// Calls f with the form that a call needs.
template <class F>
void with_form(const Call& call, F&& f) {
  if (call.table == nullptr) return f(Form<false, true>());
  call.span != nullptr ? f(Form<true, true>()) : f(Form<true, false>());
}

// `tiles`: of queries or keys of a class.
inline void run_groups(const char* name, void (*kernel)(Problem), std::size_t shared_bytes, const Problem& problem,
                       std::int32_t tiles, const Launch& launch) {
  allow_shared(kernel, shared_bytes);
  const auto blocks = static_cast<unsigned>(std::min(groups_of(problem, tiles), multiprocessors()));
  run(name, kernel, {blocks, threads, shared_bytes}, launch, problem);
}

}  // namespace longstride::kernels::cuda::distance::sm90
