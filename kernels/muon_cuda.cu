#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/muon.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

// One element a thread: these passes are short beside the matrix products they stand between.
__device__ __forceinline__ std::int64_t element() {
  return static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
}

__global__ void __launch_bounds__(threads)
    nesterov_kernel(const float* gradient, float* m, float* update, std::int64_t count, float momentum, float rest,
                    const OptimizerScalars* scalars) {
  const std::int64_t i = element();
  if (i >= count) return;
  if (scalars->finite == 0) {
    update[i] = 0;
    return;
  }
  const float g = static_cast<float>(scalars->clip_coefficient) * gradient[i];
  const float moved = momentum * m[i] + rest * g;
  m[i] = moved;
  update[i] = momentum * moved + rest * g;
}

template <class T>
__global__ void __launch_bounds__(threads)
    normalise_kernel(const float* x, const double* squares, T* y, std::int64_t count, double epsilon) {
  const std::int64_t i = element();
  if (i < count) y[i] = from_float<T>(static_cast<float>(1 / (sqrt(*squares) + epsilon)) * x[i]);
}

template <class T>
__global__ void __launch_bounds__(threads)
    polynomial_kernel(const T* x, T* square, std::int64_t n, float c0, float c1, float c2) {
  const std::int64_t i = element();
  if (i >= n * n) return;
  const float diagonal = i % (n + 1) == 0 ? c0 : 0.0f;
  square[i] = from_float<T>(c1 * to_float(x[i]) + c2 * to_float(square[i]) + diagonal);
}

template <class T>
__global__ void __launch_bounds__(threads)
    orthogonal_step_kernel(float* weights, const T* update, T* low, std::int64_t count, double scale,
                           double weight_decay, const OptimizerScalars* scalars) {
  const std::int64_t i = element();
  if (i >= count || scalars->finite == 0) return;
  const float rate = static_cast<float>(scalars->learning_rate * scale);
  const float shrink = static_cast<float>(scalars->learning_rate * weight_decay);
  const float w = weights[i] - (rate * to_float(update[i]) + shrink * weights[i]);
  weights[i] = w;
  if (low != nullptr) low[i] = from_float<T>(w);
}

}  // namespace

void nesterov(const NesterovArgs& args, const Launch& launch) {
  const std::int64_t count = args.m.count();
  run("nesterov", nesterov_kernel, {blocks_for(count, threads), threads}, launch, args.gradient.as<const float>(),
      args.m.as<float>(), args.update.as<float>(), count, static_cast<float>(args.momentum),
      static_cast<float>(1 - args.momentum), args.scalars);
}

void normalise(const NormaliseArgs& args, const Launch& launch) {
  const std::int64_t count = args.y.count();
  with_gpu_type(args.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    run("normalise", normalise_kernel<T>, {blocks_for(count, threads), threads}, launch, args.x.as<const float>(),
        args.squares.as<const double>(), args.y.as<T>(), count, args.epsilon);
  });
}

void polynomial(const PolynomialArgs& args, const Launch& launch) {
  const std::int64_t n = args.x.size[0];
  with_gpu_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    run("polynomial", polynomial_kernel<T>, {blocks_for(n * n, threads), threads}, launch, args.x.as<const T>(),
        args.square.as<T>(), n, static_cast<float>(args.c0), static_cast<float>(args.c1), static_cast<float>(args.c2));
  });
}

void orthogonal_step(const OrthogonalStepArgs& args, const Launch& launch) {
  const std::int64_t count = args.weights.count();
  with_gpu_type(args.update.dtype, [&](auto zero) {
    using T = decltype(zero);
    run("orthogonal_step", orthogonal_step_kernel<T>, {blocks_for(count, threads), threads}, launch,
        args.weights.as<float>(), args.update.as<const T>(), args.low.as<T>(), count, args.scale, args.weight_decay,
        args.scalars);
  });
}

}  // namespace longstride::kernels::cuda
