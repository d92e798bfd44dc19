#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/scan_gates/scan_gates.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256, warps = threads / 32;

__device__ __forceinline__ float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }
__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

template <class T>
__global__ void __launch_bounds__(threads)
    gates_kernel(ScanGate gate, const T* x, const float* rate, const float* bias, float factor, float* y,
                 std::int64_t count, std::int64_t columns) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t j = i % columns;
  const float value = to_float(x[i]);
  if (gate == ScanGate::softplus)
    y[i] = -expf(rate[j]) * softplus(value + bias[j]);
  else if (gate == ScanGate::step)
    y[i] = softplus(value + bias[j]);
  else
    y[i] = gate == ScanGate::sigmoid ? factor * sigmoid(value) : -factor * softplus(-value - bias[j]);
}

template <class T>
__global__ void __launch_bounds__(threads)
    sigmoid_backward_kernel(const float* dy, const T* x, float factor, T* dx, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count) return;
  const float s = sigmoid(to_float(x[i]));
  dx[i] = from_float<T>(dy[i] * factor * s * (1.0f - s));
}

// A block has a chunk of rows and 32 columns; its warps take every eighth row. Their sums are added in order.
template <class T>
__global__ void __launch_bounds__(threads)
    gates_backward_kernel(ScanGate gate, const float* dy, const T* x, const float* rate, const float* bias,
                          float factor, T* dx, std::int64_t rows, std::int64_t columns, std::int64_t chunk_rows,
                          float* partials) {
  __shared__ float sums[2][warps][32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t j = static_cast<std::int64_t>(blockIdx.y) * 32 + lane, begin = blockIdx.x * chunk_rows,
                     end = min(begin + chunk_rows, rows);
  float of_rate = 0, of_bias = 0;
  if (j < columns) {
    const bool falls = gate == ScanGate::log_sigmoid;
    const float shift = bias[j], scale = falls ? factor : gate == ScanGate::softplus ? -expf(rate[j]) : 1.0f;
    for (std::int64_t row = begin + warp; row < end; row += warps) {
      const std::int64_t i = row * columns + j;
      const float z = to_float(x[i]) + shift, above = dy[i] * scale;
      const float d = above * sigmoid(falls ? -z : z);
      dx[i] = from_float<T>(d);
      of_bias += d;
      if (gate == ScanGate::softplus) of_rate += above * softplus(z);
    }
  }
  sums[0][warp][lane] = of_rate;
  sums[1][warp][lane] = of_bias;
  __syncthreads();
  if (warp >= 2 || j >= columns) return;
  float sum = 0;
  for (int w = 0; w < warps; ++w) sum += sums[warp][w][lane];
  partials[(static_cast<std::int64_t>(blockIdx.x) * 2 + warp) * columns + j] = sum;
}

// The partial sums of rate and bias, each on its own.
__global__ void __launch_bounds__(threads)
    add_gate_sums_kernel(const float* partials, std::int64_t chunks, std::int64_t columns, float* drate, float* dbias) {
  const std::int64_t j = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (j >= columns) return;
  float of_rate = 0, of_bias = 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    of_rate += partials[2 * chunk * columns + j];
    of_bias += partials[(2 * chunk + 1) * columns + j];
  }
  if (drate != nullptr) drate[j] += of_rate;
  dbias[j] += of_bias;
}

}  // namespace

void scan_gates(const ScanGatesArgs& args, const Launch& launch) {
  const std::int64_t count = args.x.count();
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("scan_gates", gates_kernel<T>, {blocks_for(count, threads), threads}, launch, args.gate, args.x.as<const T>(),
        args.rate.as<const float>(), args.bias.as<const float>(), static_cast<float>(args.factor), args.y.as<float>(),
        count, args.x.size(-1));
  });
}

void scan_gates_backward(const ScanGatesBackwardArgs& args, const Launch& launch) {
  const std::int64_t count = args.x.count(), columns = args.x.size(-1), rows = count / columns;
  const auto factor = static_cast<float>(args.factor);
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* x = args.x.as<const T>();
    const float* dy = args.dy.as<const float>();
    if (args.gate == ScanGate::sigmoid)
      return run("scan_gates_backward", sigmoid_backward_kernel<T>, {blocks_for(count, threads), threads}, launch, dy,
                 x, factor, args.dx.as<T>(), count);
    const RowChunks split = row_chunks(rows);
    const dim3 blocks(static_cast<unsigned>(split.chunks), static_cast<unsigned>((columns + 31) / 32));
    run("scan_gates_backward", gates_backward_kernel<T>, {blocks, threads}, launch, args.gate, dy, x,
        args.rate.as<const float>(), args.bias.as<const float>(), factor, args.dx.as<T>(), rows, columns, split.rows,
        args.scratch.as<float>());
    run("scan_gates_backward", add_gate_sums_kernel, {blocks_for(columns, threads), threads}, launch,
        args.scratch.as<const float>(), split.chunks, columns, args.drate.as<float>(), args.dbias.as<float>());
  });
}

}  // namespace longstride::kernels::cuda
