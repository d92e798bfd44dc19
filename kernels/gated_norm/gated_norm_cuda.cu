#include "kernels/base/add_partials.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/gated_norm/gated_norm.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int warps = 8, threads = 32 * warps;

// By a warp, which shares the row.
template <class T>
__device__ __forceinline__ float inverse_size(const T* x, int size, int lane) {
  float squares = 0;
  for (int j = lane; j < size; j += 32) squares += to_float(x[j]) * to_float(x[j]);
  return 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(size) + static_cast<float>(gated_norm_epsilon));
}

// A warp per row.
template <class T>
__global__ void __launch_bounds__(threads)
    gated_norm_kernel(const T* x, const float* gain, const T* gate, T* y, std::int64_t rows, int size) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= rows) return;
  const float r = gain != nullptr ? inverse_size(x + row * size, size, lane) : 1.0f;
  for (int j = lane; j < size; j += 32) {
    const std::int64_t at = row * size + j;
    float h = to_float(x[at]) * r * (gain != nullptr ? gain[j] : 1.0f);
    if (gate != nullptr) h *= to_float(gate[at]) / (1.0f + expf(-to_float(gate[at])));
    y[at] = from_float<T>(h);
  }
}

// A block per chunk of rows, of which each warp takes every eighth; a warp's shares of dgain are in shared memory. What
// a row has for dx is computed twice, because dx may be dy and is rounded.
template <class T>
__global__ void __launch_bounds__(threads)
    gated_norm_backward_kernel(const T* dy, const T* x, const float* gain, const T* gate, T* dx, T* dgate,
                               std::int64_t rows, int size, std::int64_t chunk_rows, float* partials) {
  __shared__ float sums[warps][widest_gated_row];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float* const own = sums[warp];
  for (int j = lane; j < size; j += 32) own[j] = 0;
  const std::int64_t begin = blockIdx.x * chunk_rows, end = min(begin + chunk_rows, rows);
  for (std::int64_t row = begin + warp; row < end; row += warps) {
    const float r = gain != nullptr ? inverse_size(x + row * size, size, lane) : 1.0f;
    const auto through_gate = [&](std::int64_t at) {
      const float g = gate != nullptr ? to_float(gate[at]) : 0.0f;
      return gate != nullptr ? to_float(dy[at]) * g / (1.0f + expf(-g)) : to_float(dy[at]);
    };
    float along = 0;
    for (int j = lane; gain != nullptr && j < size; j += 32) {
      const std::int64_t at = row * size + j;
      const float u = through_gate(at), h = to_float(x[at]) * r;
      own[j] += u * h;
      along += u * gain[j] * h;
    }
    along = warp_sum(along) / static_cast<float>(size);
    for (int j = lane; j < size; j += 32) {
      const std::int64_t at = row * size + j;
      const float u = through_gate(at), h = to_float(x[at]) * r, scale = gain != nullptr ? gain[j] : 1.0f;
      if (gate != nullptr) {
        const float g = to_float(gate[at]), s = 1.0f / (1.0f + expf(-g));
        dgate[at] = from_float<T>(to_float(dy[at]) * h * scale * s * (1.0f + g * (1.0f - s)));
      }
      dx[at] = from_float<T>(gain != nullptr ? r * (u * scale - h * along) : u);
    }
  }
  if (gain == nullptr) return;
  __syncthreads();
  for (int j = static_cast<int>(threadIdx.x); j < size; j += threads) {
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += sums[w][j];
    partials[static_cast<std::int64_t>(blockIdx.x) * size + j] = sum;
  }
}

}  // namespace

void gated_norm(const GatedNormArgs& args, const Launch& launch) {
  const std::int64_t rows = args.x.size(0);
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("gated_norm", gated_norm_kernel<T>, {blocks_for(rows, warps), threads}, launch, args.x.as<const T>(),
        args.gain.as<const float>(), args.gate.as<const T>(), args.y.as<T>(), rows, static_cast<int>(args.x.size(1)));
  });
}

void gated_norm_backward(const GatedNormBackwardArgs& args, const Launch& launch) {
  const std::int64_t rows = args.x.size(0), size = args.x.size(1);
  const RowChunks split = row_chunks(rows);
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("gated_norm_backward", gated_norm_backward_kernel<T>, {static_cast<unsigned>(split.chunks), threads}, launch,
        args.dy.as<const T>(), args.x.as<const T>(), args.gain.as<const float>(), args.gate.as<const T>(),
        args.dx.as<T>(), args.dgate.as<T>(), rows, static_cast<int>(size), split.rows, args.scratch.as<float>());
  });
  if (args.gain.given())
    add_partials({args.scratch.as<const float>(), split.chunks, size, args.dgain.as<float>()}, launch);
}

}  // namespace longstride::kernels::cuda
