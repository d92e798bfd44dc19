#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/squared_error/squared_error.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int lanes = 32, warps = 8;

template <class T>
struct ErrorRows {
  const float *x, *target;
  float* losses;
  T* dx;
  const float* loss_scale;        // null: 1
  const std::int32_t* first_key;  // null: no group is hidden
  std::int64_t count, rows;       // all rows, and those of a group
  int width, last;
  double scale;
};

// One warp per row.
template <class T>
__global__ void __launch_bounds__(lanes* warps) squared_error_kernel(const ErrorRows<T> p) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.y;
  if (row >= p.count) return;
  const bool hidden = p.first_key != nullptr && p.first_key[row / p.rows] > p.last;
  const auto slope =
      static_cast<float>(2 * p.scale * (p.loss_scale != nullptr ? static_cast<double>(*p.loss_scale) : 1));
  const float *const x = p.x + row * p.width, *const target = p.target + row * p.width;
  T* const dx = p.dx + row * p.width;
  float sum = 0;
  for (int c = static_cast<int>(threadIdx.x); c < p.width; c += lanes) {
    const float off = hidden ? 0.0f : x[c] - target[c];
    sum = fmaf(off, off, sum);
    dx[c] = from_float<T>(slope * off);
  }
  sum = warp_sum(sum);
  if (threadIdx.x == 0) p.losses[row] = static_cast<float>(p.scale) * sum;
}

}  // namespace

void squared_error(const SquaredErrorArgs& args, const Launch& launch) {
  const std::int64_t count = args.x.size(0) * args.x.size(1);
  with_gpu_type(args.dx.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const ErrorRows<T> p{args.x.as<const float>(),
                         args.target.as<const float>(),
                         args.losses.as<float>(),
                         args.dx.as<T>(),
                         args.loss_scale,
                         args.first_key.as<const std::int32_t>(),
                         count,
                         args.x.size(1),
                         static_cast<int>(args.x.size(2)),
                         static_cast<int>(args.last),
                         args.scale};
    run("squared_error", squared_error_kernel<T>, {blocks_for(count, warps), dim3(lanes, warps)}, launch, p);
  });
}

}  // namespace longstride::kernels::cuda
