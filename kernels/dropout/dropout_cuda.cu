#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/dropout/dropout_mask.cuh"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int n = 4;  // elements that share a draw

template <class B, class T>
struct Dropped {
  const B* branch;
  const T* residual;  // null: zeros
  T* y;
  std::int64_t count;
  DropoutMask mask;
};

// A thread has one draw's elements of the global batch: at the ends fewer than n of them, and `whole` of them only if
// all addresses allow reading n at once.
template <bool whole, class B, class T>
__global__ void __launch_bounds__(threads) dropout_kernel(const Dropped<B, T> p) {
  const std::int64_t group = p.mask.first_element / n + static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  const std::int64_t first = group * n - p.mask.first_element;  // below 0 only in the first group
  if (first >= p.count) return;
  bool kept[n];
  p.mask.keep(group, p.mask.step_word(), kept);
  if (whole && first + n <= p.count) {
    float x[n], sum[n] = {};
    load<n>(p.branch + first, x);
    if (p.residual != nullptr) load<n>(p.residual + first, sum);
#pragma unroll
    for (int k = 0; k < n; ++k) sum[k] = add_dropped(sum[k], x[k], kept[k], p.mask.scale);
    store<n>(p.y + first, sum);
    return;
  }
#pragma unroll
  for (int k = 0; k < n; ++k) {
    const std::int64_t i = first + k;
    if (i < 0 || i >= p.count) continue;
    const float residual = p.residual != nullptr ? to_float(p.residual[i]) : 0.0f;
    p.y[i] = from_float<T>(add_dropped(residual, to_float(p.branch[i]), kept[k], p.mask.scale));
  }
}

template <class B, class T>
void run_dropout(const DropoutArgs& args, const Launch& launch) {
  const Dropped<B, T> p = {args.branch.as<const B>(), args.residual.given() ? args.residual.as<const T>() : nullptr,
                           args.y.as<T>(), args.branch.count(), DropoutMask(args)};
  const bool whole = args.first_element % n == 0 && aligned(p.branch, n * sizeof(B)) &&
                     aligned(p.residual, n * sizeof(T)) && aligned(p.y, n * sizeof(T));
  const std::int64_t groups = (args.first_element % n + p.count + n - 1) / n;
  run("dropout", whole ? dropout_kernel<true, B, T> : dropout_kernel<false, B, T>,
      {blocks_for(groups, threads), threads}, launch, p);
}

}  // namespace

void dropout(const DropoutArgs& args, const Launch& launch) {
  if (args.branch.count() == 0) return;
  with_gpu_type(args.branch.dtype(), [&](auto branch) {
    with_gpu_type(args.y.dtype(), [&](auto y) { run_dropout<decltype(branch), decltype(y)>(args, launch); });
  });
}

}  // namespace longstride::kernels::cuda
