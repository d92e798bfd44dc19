// A projection, drawn in double: its numbers, then each run of d rows made orthogonal by one block, or each row given
// its direction by one thread.
#include "kernels/base/cuda_launch.cuh"
#include "kernels/features/directions.h"
#include "kernels/features/features.h"
#include "kernels/gpu/lane.cuh"
#include "kernels/gpu/shared.cuh"

namespace longstride::kernels::cuda {

namespace scanning {
extern __shared__ char memory[];
}

namespace {

constexpr int threads = 256, orthogonal_warps = 16;

struct DrawCall {
  double* drawn;
  float* projection;
  std::int64_t count;
  int m, d;
  std::uint64_t seed;
  std::uint32_t redraw, domain;
  const std::int64_t* step;  // null: redraw is given
  std::int64_t every;

  __device__ std::uint32_t redrawn() const {
    return step != nullptr ? static_cast<std::uint32_t>(*step / every) : redraw;
  }
};

__global__ __launch_bounds__(threads) void draw_kernel(const DrawCall call) {
  const std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * threads + this_thread();
  if (e >= call.count) return;
  call.drawn[e] = normal_of(philox(call.seed, static_cast<std::uint64_t>(e), call.redrawn(), call.domain));
}

__device__ double dot_of(const double* a, const double* b, int d) {
  double sum = 0;
  for (int e = this_lane(); e < d; e += warp_threads) sum += a[e] * b[e];
  for (int step = 1; step < warp_threads; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
  return sum;
}

// A run of rows by one block: when a row is done, those behind it lose what they have along it. A warp has every
// sixteenth row, and its lanes the same elements of each. Rows keep their lengths.
__global__ __launch_bounds__(orthogonal_warps* warp_threads) void orthogonal_kernel(const DrawCall call) {
  const int first = static_cast<int>(blockIdx.x) * call.d, count = min(call.d, call.m - first);
  double* const rows = call.drawn + (static_cast<std::int64_t>(blockIdx.y) * call.m + first) * call.d;
  double* const length = reinterpret_cast<double*>(scanning::memory);
  const auto row = [&](int i) { return rows + static_cast<std::int64_t>(i) * call.d; };
  for (int i = this_warp(); i < count; i += orthogonal_warps) {
    const double squares = dot_of(row(i), row(i), call.d);
    if (this_lane() == 0) length[i] = sqrt(squares);
  }
  __syncwarp();
  for (int j = 0; j < count; ++j) {
    double* const y = row(j);
    if (j % orthogonal_warps == this_warp()) {
      const double rest = length[j] / sqrt(dot_of(y, y, call.d));
      for (int e = this_lane(); e < call.d; e += warp_threads) y[e] *= rest;
    }
    __syncthreads();
    const double squares = dot_of(y, y, call.d);
    const int behind = this_warp() - (j + 1) % orthogonal_warps;
    for (int i = j + 1 + (behind < 0 ? behind + orthogonal_warps : behind); i < count; i += orthogonal_warps) {
      double* const x = row(i);
      const double along = dot_of(x, y, call.d) / squares;
      for (int e = this_lane(); e < call.d; e += warp_threads) x[e] -= along * y[e];
    }
  }
}

template <bool hadamard>
__global__ __launch_bounds__(warp_threads) void direct_kernel(const DrawCall call) {
  const int row = static_cast<int>(blockIdx.x) * warp_threads + this_thread(), m = call.m, d = call.d;
  if (row >= m) return;
  const auto run = static_cast<std::uint64_t>(blockIdx.y) * static_cast<std::uint64_t>((m + d - 1) / d) +
                   static_cast<std::uint64_t>(row / d);
  const DirectionDraws draws{call.seed, first_direction + run * (hadamard ? hadamard_draws(d) : givens_draws(d)),
                             call.redrawn(), call.domain};
  double* const x = call.drawn + (static_cast<std::int64_t>(blockIdx.y) * m + row) * d;
  double squares = 0;
  for (int e = 0; e < d; ++e) squares += x[e] * x[e];
  hadamard ? hadamard_row(x, row % d, d, draws) : givens_row(x, row % d, d, draws);
  const double length = sqrt(squares);
  for (int e = 0; e < d; ++e) x[e] *= length;
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
  const auto grid_of = [&](int rows_of_block, int warps = 1, std::size_t shared_bytes = 0) {
    const auto blocks = static_cast<unsigned>((m + rows_of_block - 1) / rows_of_block);
    return Grid{dim3(blocks, static_cast<unsigned>(args.projection.size(0))),
                static_cast<unsigned>(warps) * warp_threads, shared_bytes};
  };
  if (args.orthogonal == Orthogonality::gram_schmidt)
    run("draw projection", orthogonal_kernel,
        grid_of(d, orthogonal_warps, sizeof(double) * static_cast<std::size_t>(d)), launch, call);
  else if (args.orthogonal == Orthogonality::hadamard)
    run("draw projection", direct_kernel<true>, grid_of(warp_threads), launch, call);
  else if (args.orthogonal == Orthogonality::givens)
    run("draw projection", direct_kernel<false>, grid_of(warp_threads), launch, call);
  run("draw projection", round_kernel, each, launch, call);
}

}  // namespace longstride::kernels::cuda
