#include "kernels/adam/adam.h"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

__global__ void start_kernel(const StartScalarsArgs args) {
  *args.scalars = OptimizerScalars{};
  args.scalars->loss_scale = args.loss_scale;
  args.scalars->good_steps = args.good_steps;
  args.scalars->skipped = args.skipped;
}

__global__ void scalars_kernel(const OptimizerScalarsArgs args) { update_scalars(args); }

template <class LowPrecision>
struct AdamElements {
  float* weights;
  const float* gradient;
  float* m;
  float* v;
  LowPrecision* low_precision;
  std::int64_t count, decayed;
  double beta1, beta2, epsilon, weight_decay;
  const OptimizerScalars* scalars;
  const std::int64_t* step;
};

// The factors of one step, which one thread of each block computes.
struct Factors {
  float scale, rate, v_correction, shrink;
};

template <class LowPrecision>
__device__ __forceinline__ void update(const AdamElements<LowPrecision>& p, const Factors& f, float shrink, float g,
                                       float& w, float& m, float& v) {
  g *= f.scale;
  m = static_cast<float>(p.beta1) * m + static_cast<float>(1 - p.beta1) * g;
  v = static_cast<float>(p.beta2) * v + static_cast<float>(1 - p.beta2) * g * g;
  w -= f.rate * m / (sqrtf(v * f.v_correction) + static_cast<float>(p.epsilon)) + shrink * w;
}

template <int n, class LowPrecision>
__global__ void __launch_bounds__(threads) adam_kernel(const AdamElements<LowPrecision> p) {
  if (p.scalars->finite == 0) return;
  __shared__ Factors shared;
  if (threadIdx.x == 0) {
    const double t = static_cast<double>(updates_until(*p.scalars, *p.step)), rate = p.scalars->learning_rate;
    shared = {static_cast<float>(p.scalars->clip_coefficient), static_cast<float>(rate / (1 - pow(p.beta1, t))),
              static_cast<float>(1 / (1 - pow(p.beta2, t))), static_cast<float>(rate * p.weight_decay)};
  }
  __syncthreads();
  const Factors f = shared;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads * n;
  for (std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * n; i < p.count; i += stride) {
    if (i + n <= p.count) {
      float w[n], g[n], m[n], v[n];
      load<n>(p.weights + i, w);
      load<n>(p.gradient + i, g);
      load<n>(p.m + i, m);
      load<n>(p.v + i, v);
#pragma unroll
      for (int k = 0; k < n; ++k) update(p, f, i + k < p.decayed ? f.shrink : 0.0f, g[k], w[k], m[k], v[k]);
      store<n>(p.weights + i, w);
      store<n>(p.m + i, m);
      store<n>(p.v + i, v);
      if (p.low_precision != nullptr) store<n>(p.low_precision + i, w);
    } else {
      for (std::int64_t k = i; k < p.count; ++k) {
        update(p, f, k < p.decayed ? f.shrink : 0.0f, p.gradient[k], p.weights[k], p.m[k], p.v[k]);
        if (p.low_precision != nullptr) p.low_precision[k] = from_float<LowPrecision>(p.weights[k]);
      }
    }
  }
}

__global__ void __launch_bounds__(threads)
    average_kernel(const float* weights, float* average, std::int64_t count, double largest,
                   const OptimizerScalars* scalars, const std::int64_t* step) {
  if (scalars->finite == 0) return;
  const float rest = static_cast<float>(1 - average_decay(largest, updates_until(*scalars, *step)));
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count; i += stride)
    average[i] += rest * (weights[i] - average[i]);
}

unsigned grid_for(std::int64_t items) {
  return static_cast<unsigned>(std::min(divide_up(items, threads), std::int64_t{2112}));
}

}  // namespace

void start_scalars(const StartScalarsArgs& args, const Launch& launch) {
  run("start_scalars", start_kernel, {}, launch, args);
}

void optimizer_scalars(const OptimizerScalarsArgs& args, const Launch& launch) {
  run("optimizer_scalars", scalars_kernel, {}, launch, args);
}

void adam(const AdamArgs& args, const Launch& launch) {
  const std::int64_t count = args.weights.count();
  if (count == 0) return;
  with_gpu_type(args.low_precision.given() ? args.low_precision.dtype() : Dtype::f32, [&](auto zero) {
    using LowPrecision = decltype(zero);
    const AdamElements<LowPrecision> p{args.weights.as<float>(),
                                       args.gradient.as<const float>(),
                                       args.m.as<float>(),
                                       args.v.as<float>(),
                                       args.low_precision.as<LowPrecision>(),
                                       count,
                                       args.decayed,
                                       args.beta1,
                                       args.beta2,
                                       args.epsilon,
                                       args.weight_decay,
                                       args.scalars,
                                       args.step};
    const bool packed = aligned(p.weights, 16) && aligned(p.gradient, 16) && aligned(p.m, 16) && aligned(p.v, 16) &&
                        aligned(p.low_precision, 4 * sizeof(LowPrecision));
    run("adam", packed ? adam_kernel<4, LowPrecision> : adam_kernel<1, LowPrecision>,
        {grid_for(divide_up(count, packed ? 4 : 1)), threads}, launch, p);
  });
}

void average(const AverageArgs& args, const Launch& launch) {
  const std::int64_t count = args.weights.count();
  if (count == 0) return;
  run("average", average_kernel, {grid_for(count), threads}, launch, args.weights.as<const float>(),
      args.average.as<float>(), count, args.decay, args.scalars, args.step);
}

}  // namespace longstride::kernels::cuda
