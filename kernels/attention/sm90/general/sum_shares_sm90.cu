#include "kernels/attention/sm90/general/backward_problem.h"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_types.cuh"
#include "kernels/base/head_matrix.h"
#include "kernels/gpu/fragment.cuh"

namespace longstride::kernels::cuda::sm90 {
namespace {

constexpr int threads = 256, columns = 64, per_thread = 8;

// A thread has eight columns of a row.
template <class T>
__global__ void __launch_bounds__(threads)
    sum_shares_kernel(const float* parts, std::int32_t shares, const __grid_constant__ HeadMatrix to,
                      std::int64_t elements, std::int32_t rows, std::int32_t heads, std::int32_t size, bool adds) {
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * per_thread;
  const std::int64_t row = first / columns, position = row / heads;
  const auto column = static_cast<std::int32_t>(first % columns);
  if (first >= elements || column >= size) return;
  T* const out =
      static_cast<T*>(to.data) + position / rows * to.batch + position % rows * to.row + row % heads * to.head + column;
  float sum[per_thread] = {};
  if (adds)
#pragma unroll
    for (int i = 0; i < per_thread; ++i) sum[i] = to_float(out[i]);
  for (std::int32_t s = 0; s < shares; ++s)
#pragma unroll
    for (int half = 0; half < per_thread; half += 4) {
      const float4 part = *reinterpret_cast<const float4*>(parts + s * elements + first + half);
      sum[half] += part.x, sum[half + 1] += part.y, sum[half + 2] += part.z, sum[half + 3] += part.w;
    }
  *reinterpret_cast<uint4*>(out) = {pack<T>(sum[0], sum[1]), pack<T>(sum[2], sum[3]), pack<T>(sum[4], sum[5]),
                                    pack<T>(sum[6], sum[7])};
}

}  // namespace

void sum_shares(const float* parts, std::int32_t shares, const Tensor& gradient, bool adds, const Launch& launch) {
  const auto size = [&](int d) { return static_cast<std::int32_t>(gradient.size(d)); };
  const std::int64_t elements = std::int64_t{size(0)} * size(1) * size(2) * columns;
  const auto blocks = static_cast<unsigned>((elements / per_thread + threads - 1) / threads);
  with_gpu_type(gradient.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>)
      run("attention_sum_shares_sm90", sum_shares_kernel<T>, {blocks, threads}, launch, parts, shares,
          HeadMatrix(gradient), elements, size(1), size(2), size(3), adds);
  });
}

}  // namespace longstride::kernels::cuda::sm90
