#include "kernels/base/activation.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/gelu/gelu.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

// y = gelu(x), or y = dy gelu'(x) when dy is given.
template <int n, class T>
__global__ void __launch_bounds__(threads) gelu_kernel(const T* dy, const T* x, T* y, std::int64_t count) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * n;
  if (i >= count) return;
  if (i + n <= count) {
    float values[n], slopes[n];
    load<n>(x + i, values);
    if (dy != nullptr) {
      load<n>(dy + i, slopes);
#pragma unroll
      for (int k = 0; k < n; ++k) values[k] = slopes[k] * gelu_slope_of<T>(values[k]);
    } else {
#pragma unroll
      for (int k = 0; k < n; ++k) values[k] = gelu_of<T>(values[k]);
    }
    store<n>(y + i, values);
    return;
  }
  for (std::int64_t k = i; k < count; ++k) {
    const float value = to_float(x[k]);
    y[k] = from_float<T>(dy != nullptr ? to_float(dy[k]) * gelu_slope_of<T>(value) : gelu_of<T>(value));
  }
}

void run_gelu(const char* name, const View* dy, const View& x, const View& y, const Launch& launch) {
  const std::int64_t count = x.count();
  if (count == 0) return;
  with_gpu_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int n = pack_of<T>;
    const bool packed = aligned(x.data, 16) && aligned(y.data, 16) && (dy == nullptr || aligned(dy->data, 16));
    run(name, packed ? gelu_kernel<n, T> : gelu_kernel<1, T>, {blocks_for(count, threads * (packed ? n : 1)), threads},
        launch, dy != nullptr ? dy->as<const T>() : nullptr, x.as<const T>(), y.as<T>(), count);
  });
}

}  // namespace

void gelu(const GeluArgs& args, const Launch& launch) { run_gelu("gelu", nullptr, args.x, args.y, launch); }

void gelu_backward(const GeluBackwardArgs& args, const Launch& launch) {
  run_gelu("gelu_backward", &args.dy, args.x, args.dx, launch);
}

}  // namespace longstride::kernels::cuda
