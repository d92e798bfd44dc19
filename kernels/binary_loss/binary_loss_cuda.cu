#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/binary_loss/binary_loss.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

template <class T>
struct Binaries {
  const float* logits;
  const std::uint16_t* targets;
  const float* weights;  // null: 1
  float* losses;
  std::uint8_t* right;  // may be null
  T* gradient;          // may be null
  std::int64_t count;
  double scale;
  const float* loss_scale;
};

template <class T>
__global__ void __launch_bounds__(threads) binary_loss_kernel(const Binaries<T> p) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= p.count) return;
  const bool yes = p.targets[i] != 0;
  const float x = p.logits[i], weight = p.weights != nullptr ? p.weights[i] : 1.0f, small = expf(-fabsf(x));
  p.losses[i] = weight * (fmaxf(yes ? -x : x, 0.0f) + log1pf(small));
  if (p.right != nullptr) p.right[i] = (x >= 0) == yes ? 1 : 0;
  if (p.gradient == nullptr) return;
  const float scale =
      weight * static_cast<float>(p.loss_scale != nullptr ? p.scale * static_cast<double>(*p.loss_scale) : p.scale);
  p.gradient[i] = from_float<T>(scale * ((x > 0 ? 1.0f : small) / (1 + small) - (yes ? 1.0f : 0.0f)));
}

}  // namespace

void binary_loss(const BinaryLossArgs& args, const Launch& launch) {
  if (args.logits.count() == 0) return;
  with_gpu_type(args.gradient.given() ? args.gradient.dtype() : Dtype::f32, [&](auto zero) {
    using T = decltype(zero);
    const Binaries<T> p{args.logits.as<const float>(),
                        args.targets.as<const std::uint16_t>(),
                        args.weights.as<const float>(),
                        args.losses.as<float>(),
                        args.right.as<std::uint8_t>(),
                        args.gradient.as<T>(),
                        args.logits.count(),
                        args.scale,
                        args.loss_scale};
    run("binary_loss", binary_loss_kernel<T>, {blocks_for(p.count, threads), threads}, launch, p);
  });
}

}  // namespace longstride::kernels::cuda
