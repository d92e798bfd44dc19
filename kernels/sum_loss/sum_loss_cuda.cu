#include "kernels/base/block_sum.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/sum_loss/sum_loss.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

// One block: these losses are of few parameters.
__global__ void __launch_bounds__(threads) sum_loss_kernel(const float* x, float* gradient, double* loss,
                                                           std::int64_t count, double factor, const float* loss_scale) {
  const auto slope = static_cast<float>(factor * (loss_scale != nullptr ? static_cast<double>(*loss_scale) : 1.0));
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += threads) {
    gradient[i] += slope;
    sum += static_cast<double>(x[i]);
  }
  sum = block_sum<threads>(sum);
  if (threadIdx.x == 0) *loss += factor * sum;
}

}  // namespace

void sum_loss(const SumLossArgs& args, const Launch& launch) {
  run("sum_loss", sum_loss_kernel, {1, threads}, launch, args.x.as<const float>(), args.gradient.as<float>(),
      args.loss.as<double>(), args.x.count(), args.factor, args.loss_scale);
}

}  // namespace longstride::kernels::cuda
