// A projection, drawn in double: its numbers, then each run of d rows made orthogonal by one warp.
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/philox.h"
#include "kernels/features/features.h"
#include "kernels/gpu/lane.cuh"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

struct DrawCall {
  double* drawn;
  float* projection;
  std::int64_t count;
  int m, d;
  std::uint64_t seed;
  std::uint32_t redraw, domain;
  const std::int64_t* step;  // null: redraw is given
  std::int64_t every;
};

__global__ __launch_bounds__(threads) void draw_kernel(const DrawCall call) {
  const std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * threads + this_thread();
  if (e >= call.count) return;
  const auto redraw = call.step != nullptr ? static_cast<std::uint32_t>(*call.step / call.every) : call.redraw;
  call.drawn[e] = normal_of(philox(call.seed, static_cast<std::uint64_t>(e), redraw, call.domain));
}

__device__ double dot_of(const double* a, const double* b, int d) {
  double sum = 0;
  for (int e = this_lane(); e < d; e += warp_threads) sum += a[e] * b[e];
  for (int step = 1; step < warp_threads; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
  return sum;
}

// A lane reads and writes the same elements of every row. Rows keep their lengths.
__global__ void orthogonal_kernel(const DrawCall call) {
  const int first = static_cast<int>(blockIdx.x) * call.d, count = min(call.d, call.m - first);
  double* const rows = call.drawn + (static_cast<std::int64_t>(blockIdx.y) * call.m + first) * call.d;
  for (int i = 0; i < count; ++i) {
    double* const x = rows + static_cast<std::int64_t>(i) * call.d;
    const double length = sqrt(dot_of(x, x, call.d));
    for (int j = 0; j < i; ++j) {
      const double* const y = rows + static_cast<std::int64_t>(j) * call.d;
      const double along = dot_of(x, y, call.d) / dot_of(y, y, call.d);
      for (int e = this_lane(); e < call.d; e += warp_threads) x[e] -= along * y[e];
    }
    const double rest = length / sqrt(dot_of(x, x, call.d));
    for (int e = this_lane(); e < call.d; e += warp_threads) x[e] *= rest;
  }
}

__global__ __launch_bounds__(threads) void round_kernel(const DrawCall call) {
  const std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * threads + this_thread();
  if (e < call.count) call.projection[e] = static_cast<float>(call.drawn[e]);
}

}  // namespace

void draw_projection(const DrawProjectionArgs& args, const Launch& launch) {
  const auto m = static_cast<int>(args.projection.size(1)), d = static_cast<int>(args.projection.size(2));
  const DrawCall call{args.scratch.as<double>(),
                      args.projection.as<float>(),
                      args.projection.count(),
                      m,
                      d,
                      args.seed,
                      args.redraw,
                      domain_of(Purpose::projection, args.layer),
                      args.step,
                      args.every};
  const Grid each{dim3(static_cast<unsigned>((call.count + threads - 1) / threads)), threads};
  run("draw projection", draw_kernel, each, launch, call);
  if (args.orthogonal)
    run("draw projection", orthogonal_kernel,
        {dim3(static_cast<unsigned>((m + d - 1) / d), static_cast<unsigned>(args.projection.size(0))), warp_threads},
        launch, call);
  run("draw projection", round_kernel, each, launch, call);
}

}  // namespace longstride::kernels::cuda
