#include <algorithm>

#include "kernels/adagrad/adagrad.h"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

template <class LowPrecision>
struct AdagradElements {
  float* weights;
  const float* gradient;
  float* sum;
  LowPrecision* low_precision;
  const double* tensor_squares;
  std::int64_t count;
  double tensor_clip, epsilon, weight_decay;
  const OptimizerScalars* scalars;
};

struct Factors {
  float scale, rate, shrink, epsilon;
};

__device__ __forceinline__ void update(const Factors& f, float g, float& w, float& sum) {
  g *= f.scale;
  sum += g * g;
  w -= f.rate * g / (sqrtf(sum) + f.epsilon) + f.shrink * w;
}

template <int n, class LowPrecision>
__global__ void __launch_bounds__(threads) adagrad_kernel(const AdagradElements<LowPrecision> p) {
  if (p.scalars->finite == 0) return;
  __shared__ Factors shared;
  if (threadIdx.x == 0) {
    const AdagradFactors f = adagrad_factors(*p.scalars, p.tensor_squares, p.tensor_clip, p.weight_decay);
    shared = {static_cast<float>(f.scale), static_cast<float>(f.rate), static_cast<float>(f.shrink),
              static_cast<float>(p.epsilon)};
  }
  __syncthreads();
  const Factors f = shared;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads * n;
  for (std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * n; i < p.count; i += stride) {
    if (i + n <= p.count) {
      float w[n], g[n], sum[n];
      load<n>(p.weights + i, w);
      load<n>(p.gradient + i, g);
      load<n>(p.sum + i, sum);
#pragma unroll
      for (int k = 0; k < n; ++k) update(f, g[k], w[k], sum[k]);
      store<n>(p.weights + i, w);
      store<n>(p.sum + i, sum);
      if (p.low_precision != nullptr) store<n>(p.low_precision + i, w);
    } else {
      for (std::int64_t k = i; k < p.count; ++k) {
        update(f, p.gradient[k], p.weights[k], p.sum[k]);
        if (p.low_precision != nullptr) p.low_precision[k] = from_float<LowPrecision>(p.weights[k]);
      }
    }
  }
}

}  // namespace

void adagrad(const AdagradArgs& args, const Launch& launch) {
  const std::int64_t count = args.weights.count();
  if (count == 0) return;
  with_gpu_type(args.low_precision.given() ? args.low_precision.dtype() : Dtype::f32, [&](auto zero) {
    using LowPrecision = decltype(zero);
    const AdagradElements<LowPrecision> p{args.weights.as<float>(),
                                          args.gradient.as<const float>(),
                                          args.sum.as<float>(),
                                          args.low_precision.as<LowPrecision>(),
                                          args.tensor_squares.as<const double>(),
                                          count,
                                          args.tensor_clip,
                                          args.epsilon,
                                          args.weight_decay,
                                          args.scalars};
    const bool packed = aligned(p.weights, 16) && aligned(p.gradient, 16) && aligned(p.sum, 16) &&
                        aligned(p.low_precision, 4 * sizeof(LowPrecision));
    const std::int64_t blocks = divide_up(divide_up(count, packed ? 4 : 1), threads);
    run("adagrad", packed ? adagrad_kernel<4, LowPrecision> : adagrad_kernel<1, LowPrecision>,
        {static_cast<unsigned>(std::min(blocks, std::int64_t{2112})), threads}, launch, p);
  });
}

}  // namespace longstride::kernels::cuda
