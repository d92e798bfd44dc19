#include "kernels/base/add_partials.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/scan_gates/scan_gates.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int lanes = 32, warps = 8, threads = lanes * warps, rows_of_thread = 4;

__device__ __forceinline__ float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }
__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// A lane has V neighbouring columns, a warp rows_of_thread rows; so every number is read at once and no column is found
// by a division.
template <int V>
__device__ std::int64_t column_of() {
  return (static_cast<std::int64_t>(blockIdx.y) * lanes + threadIdx.x % lanes) * V;
}

template <class T, int V>
__global__ void __launch_bounds__(threads)
    gates_kernel(ScanGate gate, const T* x, const float* rate, const float* bias, float factor, float* y,
                 std::int64_t rows, std::int64_t columns) {
  const std::int64_t j = column_of<V>(),
                     first = (static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / lanes) * rows_of_thread;
  if (j >= columns) return;
  float value[rows_of_thread][V], shift[V], scale[V];
#pragma unroll
  for (int r = 0; r < rows_of_thread; ++r)
    if (first + r < rows) load<V>(x + (first + r) * columns + j, value[r]);
#pragma unroll
  for (int v = 0; v < V; ++v) {
    shift[v] = gate != ScanGate::sigmoid ? bias[j + v] : 0.0f;
    scale[v] = gate == ScanGate::softplus      ? -expf(rate[j + v])
               : gate == ScanGate::step        ? 1.0f
               : gate == ScanGate::log_sigmoid ? -factor
                                               : factor;
  }
#pragma unroll
  for (int r = 0; r < rows_of_thread; ++r) {
    if (first + r >= rows) return;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const float z = value[r][v] + shift[v];
      value[r][v] =
          scale[v] * (gate == ScanGate::sigmoid ? sigmoid(z) : softplus(gate == ScanGate::log_sigmoid ? -z : z));
    }
    store<V>(y + (first + r) * columns + j, value[r]);
  }
}

template <class T>
__global__ void __launch_bounds__(threads)
    sigmoid_backward_kernel(const float* dy, const T* x, float factor, T* dx, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count) return;
  const float s = sigmoid(to_float(x[i]));
  dx[i] = from_float<T>(dy[i] * factor * s * (1.0f - s));
}

// A block has a chunk of rows and 32 V columns; its warps take every eighth row. Their sums are added in order.
template <class T, int V>
__global__ void __launch_bounds__(threads)
    gates_backward_kernel(ScanGate gate, const float* dy, const T* x, const float* rate, const float* bias,
                          float factor, T* dx, std::int64_t rows, std::int64_t columns, std::int64_t chunk_rows,
                          float* partials) {
  __shared__ float sums[2][warps][lanes * V];
  const int lane = static_cast<int>(threadIdx.x) % lanes, warp = static_cast<int>(threadIdx.x) / lanes;
  const std::int64_t j = column_of<V>(), begin = blockIdx.x * chunk_rows, end = min(begin + chunk_rows, rows);
  float of_rate[V] = {}, of_bias[V] = {};
  if (j < columns) {
    const bool falls = gate == ScanGate::log_sigmoid;
    float shift[V], scale[V];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      shift[v] = bias[j + v];
      scale[v] = falls ? factor : gate == ScanGate::softplus ? -expf(rate[j + v]) : 1.0f;
    }
    for (std::int64_t row = begin + warp; row < end; row += rows_of_thread * warps) {
      float value[rows_of_thread][V], above[rows_of_thread][V];
#pragma unroll
      for (int r = 0; r < rows_of_thread; ++r) {
        if (row + r * warps >= end) break;
        load<V>(x + (row + r * warps) * columns + j, value[r]);
        load<V>(dy + (row + r * warps) * columns + j, above[r]);
      }
#pragma unroll
      for (int r = 0; r < rows_of_thread; ++r) {
        if (row + r * warps >= end) break;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const float z = value[r][v] + shift[v], g = above[r][v] * scale[v];
          value[r][v] = g * sigmoid(falls ? -z : z);
          of_bias[v] += value[r][v];
          if (gate == ScanGate::softplus) of_rate[v] += g * softplus(z);
        }
        store<V>(dx + (row + r * warps) * columns + j, value[r]);
      }
    }
  }
#pragma unroll
  for (int v = 0; v < V; ++v) {
    sums[0][warp][lane * V + v] = of_bias[v];
    sums[1][warp][lane * V + v] = of_rate[v];
  }
  __syncthreads();
  const int totals = gate == ScanGate::softplus ? 2 : 1;
  if (warp >= totals || j >= columns) return;
#pragma unroll
  for (int v = 0; v < V; ++v) {
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += sums[warp][w][lane * V + v];
    partials[(static_cast<std::int64_t>(blockIdx.x) * totals + warp) * columns + j + v] = sum;
  }
}

// Calls f(T, number of columns per thread): four, or one where rows are not aligned.
template <class F>
void with_pack(const Tensor& x, const Tensor& dx, const Tensor& exact, F&& f) {
  with_gpu_type(x.dtype(), [&](auto zero) {
    constexpr int pack = 4;
    const bool packed = x.size(-1) % pack == 0 && aligned(x.data(), pack * sizeof(zero)) &&
                        (!dx.given() || aligned(dx.data(), pack * sizeof(zero))) &&
                        aligned(exact.data(), pack * sizeof(float));
    packed ? f(zero, std::integral_constant<int, pack>{}) : f(zero, std::integral_constant<int, 1>{});
  });
}
dim3 blocks_of(std::int64_t row_blocks, std::int64_t columns, int pack) {
  return {static_cast<unsigned>(row_blocks), blocks_for(columns, lanes * pack)};
}

}  // namespace

void scan_gates(const ScanGatesArgs& args, const Launch& launch) {
  const std::int64_t columns = args.x.size(-1), rows = args.x.count() / columns;
  with_pack(args.x, {}, args.y, [&](auto zero, auto pack) {
    using T = decltype(zero);
    run("scan_gates", gates_kernel<T, pack()>,
        {blocks_of(blocks_for(rows, warps * rows_of_thread), columns, pack()), threads}, launch, args.gate,
        args.x.as<const T>(), args.rate.as<const float>(), args.bias.as<const float>(), static_cast<float>(args.factor),
        args.y.as<float>(), rows, columns);
  });
}

void scan_gates_backward(const ScanGatesBackwardArgs& args, const Launch& launch) {
  const std::int64_t count = args.x.count(), columns = args.x.size(-1), rows = count / columns;
  const auto factor = static_cast<float>(args.factor);
  const float* dy = args.dy.as<const float>();
  if (args.gate == ScanGate::sigmoid)
    return with_gpu_type(args.x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      run("scan_gates_backward", sigmoid_backward_kernel<T>, {blocks_for(count, threads), threads}, launch, dy,
          args.x.as<const T>(), factor, args.dx.as<T>(), count);
    });
  const RowChunks split = row_chunks(rows);
  with_pack(args.x, args.dx, args.dy, [&](auto zero, auto pack) {
    using T = decltype(zero);
    run("scan_gates_backward", gates_backward_kernel<T, pack()>, {blocks_of(split.chunks, columns, pack()), threads},
        launch, args.gate, dy, args.x.as<const T>(), args.rate.as<const float>(), args.bias.as<const float>(), factor,
        args.dx.as<T>(), rows, columns, split.rows, args.scratch.as<float>());
  });
  PartialSums sums(args.scratch.as<const float>(), split.chunks, columns, args.dbias.as<float>());
  if (args.drate.given()) sums.add(args.drate.as<float>());
  add_partials(sums, launch);
}

}  // namespace longstride::kernels::cuda
