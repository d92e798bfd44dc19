#include "kernels/activation/activation.h"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/gemm/activation.cuh"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

__device__ __forceinline__ float normal_density(float x) {
  constexpr float at_zero = 0.3989422804f;  // 1 / sqrt(2 pi)
  return at_zero * expf(-0.5f * x * x);
}

template <Activation activation, class T>
__device__ __forceinline__ float value_of(float x) {
  if constexpr (activation == Activation::sigmoid_gelu)
    return gelu_of<T>(x);
  else if constexpr (activation == Activation::relu)
    return fmaxf(x, 0.0f);
  else
    return x * normcdff(x);
}

template <Activation activation, class T>
__device__ __forceinline__ float slope_of(float x) {
  if constexpr (activation == Activation::sigmoid_gelu)
    return gelu_slope_of<T>(x);
  else if constexpr (activation == Activation::relu)
    return x > 0.0f ? 1.0f : 0.0f;
  else
    return fmaf(x, normal_density(x), normcdff(x));
}

// A thread takes n neighbouring elements of y. With two inputs per element, y's element i of row r belongs to x's
// elements i + r width and i + (r + 1) width.
template <Activation activation, int n, class T>
__global__ void __launch_bounds__(threads) activation_kernel(const T* x, T* y, std::int64_t count, std::int64_t width) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * n;
  if (i >= count) return;
  const std::int64_t at = inputs_of(activation) == 2 ? i + i / width * width : i;
  float value[n];
  load<n>(x + at, value);
#pragma unroll
  for (int k = 0; k < n; ++k) value[k] = value_of<activation, T>(value[k]);
  if constexpr (inputs_of(activation) == 2) {
    float gate[n];
    load<n>(x + at + width, gate);
#pragma unroll
    for (int k = 0; k < n; ++k) value[k] *= gate[k];
  }
  store<n>(y + i, value);
}

template <Activation activation, int n, class T>
__global__ void __launch_bounds__(threads)
    activation_backward_kernel(const T* dy, const T* x, T* dx, std::int64_t count, std::int64_t width) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * n;
  if (i >= count) return;
  const std::int64_t at = inputs_of(activation) == 2 ? i + i / width * width : i;
  float gradient[n], value[n];
  load<n>(dy + i, gradient);
  load<n>(x + at, value);
  if constexpr (inputs_of(activation) == 2) {
    float gate[n], to_gate[n];
    load<n>(x + at + width, gate);
#pragma unroll
    for (int k = 0; k < n; ++k) {
      to_gate[k] = gradient[k] * value_of<activation, T>(value[k]);
      gradient[k] *= gate[k];
    }
    store<n>(dx + at + width, to_gate);
  }
#pragma unroll
  for (int k = 0; k < n; ++k) gradient[k] *= slope_of<activation, T>(value[k]);
  store<n>(dx + at, gradient);
}

// Calls f(std::integral_constant) with the activation.
template <class F>
void with_activation(Activation activation, F&& f) {
  switch (activation) {
    case Activation::sigmoid_gelu:
      return f(std::integral_constant<Activation, Activation::sigmoid_gelu>{});
    case Activation::relu:
      return f(std::integral_constant<Activation, Activation::relu>{});
    case Activation::gelu:
      return f(std::integral_constant<Activation, Activation::gelu>{});
    case Activation::geglu:
      return f(std::integral_constant<Activation, Activation::geglu>{});
  }
}

}  // namespace

void activation(const ActivationArgs& args, const Launch& launch) {
  const std::int64_t count = args.y.count(), width = args.y.size(1);
  if (count == 0) return;
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    constexpr int n = pack_of<T>;
    const bool packed = width % n == 0 && aligned(args.x.data(), 16) && aligned(args.y.data(), 16);
    with_activation(args.activation, [&](auto which) {
      run("activation", packed ? activation_kernel<which(), n, T> : activation_kernel<which(), 1, T>,
          {blocks_for(count, threads * (packed ? n : 1)), threads}, launch, args.x.as<const T>(), args.y.as<T>(), count,
          width);
    });
  });
}

void activation_backward(const ActivationBackwardArgs& args, const Launch& launch) {
  const std::int64_t count = args.dy.count(), width = args.dy.size(1);
  if (count == 0) return;
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    constexpr int n = pack_of<T>;
    const bool packed =
        width % n == 0 && aligned(args.dy.data(), 16) && aligned(args.x.data(), 16) && aligned(args.dx.data(), 16);
    with_activation(args.activation, [&](auto which) {
      run("activation_backward",
          packed ? activation_backward_kernel<which(), n, T> : activation_backward_kernel<which(), 1, T>,
          {blocks_for(count, threads * (packed ? n : 1)), threads}, launch, args.dy.as<const T>(), args.x.as<const T>(),
          args.dx.as<T>(), count, width);
    });
  });
}

}  // namespace longstride::kernels::cuda
