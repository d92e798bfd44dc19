#include "kernels/attention/bounds_from_keys.h"

#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

__global__ void __launch_bounds__(threads)
    bounds_from_keys_kernel(const std::int32_t* begin, const std::int32_t* end, std::int32_t n_q, std::int32_t n_k,
                            std::int64_t count, std::int32_t* first_query, std::int32_t* beyond_query) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t row = i / n_k * n_q;
  const auto key = static_cast<std::int32_t>(i % n_k);
  first_query[i] = first_above(end + row, n_q, key);
  beyond_query[i] = first_above(begin + row, n_q, key);
}

}  // namespace

BoundsView bounds_from_keys(const RowBounds& bounds, std::int64_t n_k, void* memory, const Launch& launch) {
  const Shape shape{bounds.begin.size(0), bounds.begin.size(1), n_k};
  const Tensor first(memory, Dtype::i32, shape),
      beyond(static_cast<std::int32_t*>(memory) + shape.count(), Dtype::i32, shape);
  run("bounds_from_keys", bounds_from_keys_kernel, {blocks_for(shape.count(), threads), threads}, launch,
      bounds.begin.as<const std::int32_t>(), bounds.end.as<const std::int32_t>(),
      static_cast<std::int32_t>(bounds.begin.size(2)), static_cast<std::int32_t>(n_k), shape.count(),
      first.as<std::int32_t>(), beyond.as<std::int32_t>());
  return {first, beyond};
}

}  // namespace longstride::kernels::cuda
