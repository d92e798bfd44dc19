#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/sinusoid/sinusoid.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256, rows_of_thread = 8;

// A thread has one frequency, whose power takes most of the time, and several rows.
template <class T>
__global__ void __launch_bounds__(threads) sinusoid_kernel(T* y, std::int64_t rows, std::int64_t width) {
  const std::int64_t half = width / 2, x = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  const std::int64_t i = x % half, first = x / half * rows_of_thread;
  if (first >= rows) return;
  const double frequency = sinusoid_frequency(i, width);
  const std::int64_t end = first + rows_of_thread < rows ? first + rows_of_thread : rows;
  for (std::int64_t t = first; t < end; ++t) {
    float sine, cosine;
    sincospif(static_cast<float>(sinusoid_half_turns(t, frequency)), &sine, &cosine);
    y[t * width + i] = from_float<T>(sine);
    y[t * width + half + i] = from_float<T>(cosine);
  }
}

}  // namespace

void sinusoid(const SinusoidArgs& args, const Launch& launch) {
  const std::int64_t rows = args.y.size(0), width = args.y.size(1);
  if (args.y.count() == 0) return;
  with_gpu_type(args.y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t groups = (rows + rows_of_thread - 1) / rows_of_thread;
    run("sinusoid", sinusoid_kernel<T>, {blocks_for(groups * width / 2, threads), threads}, launch, args.y.as<T>(),
        rows, width);
  });
}

}  // namespace longstride::kernels::cuda
