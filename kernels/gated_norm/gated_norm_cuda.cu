#include "kernels/base/add_partials.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/gated_norm/gated_norm.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int warps = 8, threads = 32 * warps;

__device__ __forceinline__ float silu(float x) { return x / (1.0f + expf(-x)); }

// By a warp, which shares the row. gate: null, or what multiplies it first.
template <class T>
__device__ __forceinline__ float inverse_size(const T* x, const T* gate, int size, int lane) {
  float squares = 0;
  for (int j = lane; j < size; j += 32) {
    const float u = to_float(x[j]) * (gate != nullptr ? silu(to_float(gate[j])) : 1.0f);
    squares += u * u;
  }
  return 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(size) + static_cast<float>(gated_norm_epsilon));
}

// A warp per row.
template <class T>
__global__ void __launch_bounds__(threads) gated_norm_kernel(const T* x, const float* gain, const T* gate, T* y,
                                                             std::int64_t rows, int size, int sets, bool gate_first) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / 32, at = row * size;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= rows) return;
  if (gain != nullptr) gain += row % sets * size;
  const float r = gain != nullptr ? inverse_size(x + at, gate_first ? gate + at : nullptr, size, lane) : 1.0f;
  for (int j = lane; j < size; j += 32) {
    float h = to_float(x[at + j]) * r * (gain != nullptr ? gain[j] : 1.0f);
    if (gate != nullptr) h *= silu(to_float(gate[at + j]));
    y[at + j] = from_float<T>(h);
  }
}

template <class T>
struct NormGradients {
  const T *dy, *x;
  const float* gain;
  const T* gate;
  T *dx, *dgate;
  std::int64_t rows;  // those of one set of gains
  int size, sets;
  bool gate_first;
};

// The rows of a set of gains: a block per chunk of them, of which each warp takes every eighth; a warp's shares of
// dgain are in shared memory. What a row has for dx is computed twice, because dx may be dy and is rounded.
template <class T>
__global__ void __launch_bounds__(threads)
    gated_norm_backward_kernel(const NormGradients<T> all, std::int64_t chunk_rows, float* partials) {
  __shared__ float sums[warps][widest_gated_row];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, size = all.size;
  float* const own = sums[warp];
  for (int j = lane; j < size; j += 32) own[j] = 0;
  const float* const gain = all.gain != nullptr ? all.gain + static_cast<std::int64_t>(blockIdx.y) * size : nullptr;
  const std::int64_t begin = blockIdx.x * chunk_rows, end = min(begin + chunk_rows, all.rows);
  for (std::int64_t of_set = begin + warp; of_set < end; of_set += warps) {
    const std::int64_t at = (of_set * all.sets + blockIdx.y) * size;
    const T *dy = all.dy + at, *x = all.x + at, *gate = all.gate != nullptr ? all.gate + at : nullptr;
    const float r = gain != nullptr ? inverse_size(x, all.gate_first ? gate : nullptr, size, lane) : 1.0f;
    const auto normed = [&](int j) { return to_float(x[j]) * r * (all.gate_first ? silu(to_float(gate[j])) : 1.0f); };
    const auto above = [&](int j) {  // the gradient of h gain
      return to_float(dy[j]) * (gate != nullptr && !all.gate_first ? silu(to_float(gate[j])) : 1.0f);
    };
    float along = 0;
    for (int j = lane; gain != nullptr && j < size; j += 32) {
      const float u = above(j), h = normed(j);
      own[j] += u * h;
      along += u * gain[j] * h;
    }
    along = warp_sum(along) / static_cast<float>(size);
    for (int j = lane; j < size; j += 32) {
      const float u = above(j), h = normed(j), scale = gain != nullptr ? gain[j] : 1.0f;
      float d = gain != nullptr ? r * (u * scale - h * along) : u;
      if (gate != nullptr) {
        const float g = to_float(gate[j]), s = 1.0f / (1.0f + expf(-g)), slope = s * (1.0f + g * (1.0f - s));
        all.dgate[at + j] = from_float<T>((all.gate_first ? d * to_float(x[j]) : to_float(dy[j]) * h * scale) * slope);
        if (all.gate_first) d *= g * s;
      }
      all.dx[at + j] = from_float<T>(d);
    }
  }
  if (gain == nullptr) return;
  __syncthreads();
  for (int j = static_cast<int>(threadIdx.x); j < size; j += threads) {
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += sums[w][j];
    partials[(static_cast<std::int64_t>(blockIdx.x) * all.sets + blockIdx.y) * size + j] = sum;
  }
}

template <class Args>
int sets_of(const Args& args) {
  return args.gain.given() ? static_cast<int>(args.gain.count() / args.x.size(1)) : 1;
}

}  // namespace

void gated_norm(const GatedNormArgs& args, const Launch& launch) {
  const std::int64_t rows = args.x.size(0);
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("gated_norm", gated_norm_kernel<T>, {blocks_for(rows, warps), threads}, launch, args.x.as<const T>(),
        args.gain.as<const float>(), args.gate.as<const T>(), args.y.as<T>(), rows, static_cast<int>(args.x.size(1)),
        sets_of(args), args.gate_first);
  });
}

void gated_norm_backward(const GatedNormBackwardArgs& args, const Launch& launch) {
  const int sets = sets_of(args);
  const std::int64_t rows = args.x.size(0) / sets;
  const RowChunks split = row_chunks(rows);
  const dim3 blocks(static_cast<unsigned>(split.chunks), static_cast<unsigned>(sets));
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const NormGradients<T> all{args.dy.as<const T>(),
                               args.x.as<const T>(),
                               args.gain.as<const float>(),
                               args.gate.as<const T>(),
                               args.dx.as<T>(),
                               args.dgate.as<T>(),
                               rows,
                               static_cast<int>(args.x.size(1)),
                               sets,
                               args.gate_first};
    run("gated_norm_backward", gated_norm_backward_kernel<T>, {blocks, threads}, launch, all, split.rows,
        args.scratch.as<float>());
  });
  if (args.gain.given())
    add_partials({args.scratch.as<const float>(), split.chunks, args.gain.count(), args.dgain.as<float>()}, launch);
}

}  // namespace longstride::kernels::cuda
