#include "kernels/base/add_partials.cuh"
#include "kernels/base/block_sum.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/sink/sink.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256, lanes = 8, block_rows = threads / lanes;  // lanes: of a row

// The rows of all sequences of o, or of dout.
struct Rows {
  std::int64_t n, rows;  // positions of a sequence; of all
  int heads, size;
  std::int64_t batch_stride, position_stride, head_stride;

  explicit Rows(const Tensor& o)
      : n(o.size(1)),
        rows(o.size(0) * o.size(1)),
        heads(static_cast<int>(o.size(2))),
        size(static_cast<int>(o.size(3))),
        batch_stride(o.stride(0)),
        position_stride(o.stride(1)),
        head_stride(o.stride(2)) {}
  __device__ std::int64_t element(std::int64_t row, int head) const {
    return row / n * batch_stride + row % n * position_stride + head * head_stride;
  }
  __device__ std::int64_t of_lse(std::int64_t row, int head) const { return (row / n * heads + head) * n + row % n; }
};

// n elements at a time.
template <int n, class T>
__global__ void __launch_bounds__(threads) sink_kernel(const Rows all, const float* sink, T* o, float* lse) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * block_rows + threadIdx.x / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const bool inside = index < all.rows * all.heads;
  const std::int64_t row = inside ? index / all.heads : 0;
  const int head = inside ? static_cast<int>(index % all.heads) : 0;
  float* const of_row = lse + all.of_lse(row, head);
  const float before = *of_row, logit = sink[head], share = 1.0f / (1.0f + expf(logit - before));
  __syncwarp();  // every lane has read it
  if (!inside) return;
  T* const to = o + all.element(row, head);
  for (int d = lane * n; d < all.size; d += lanes * n) {
    float x[n];
    load(to + d, x);
#pragma unroll
    for (int e = 0; e < n; ++e) x[e] *= share;
    store(to + d, x);
  }
  if (lane == 0) *of_row = fmaxf(before, logit) + log1pf(expf(-fabsf(before - logit)));
}

// A block per chunk of rows and head.
template <int n, class T>
__global__ void __launch_bounds__(threads)
    sink_backward_kernel(const Rows all, const Rows of_dout, const float* sink, const T* o, const T* dout,
                         const float* lse, std::int64_t chunk_rows, float* partials) {
  const int head = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x) % lanes;
  const std::int64_t begin = blockIdx.x * chunk_rows, end = min(begin + chunk_rows, all.rows);
  const float logit = sink[head];
  float sum = 0;
  for (std::int64_t first = begin; first < end; first += block_rows) {
    const std::int64_t row = first + threadIdx.x / lanes;
    float dot = 0;
    if (row < end) {
      const T *x = o + all.element(row, head), *y = dout + of_dout.element(row, head);
      for (int d = lane * n; d < all.size; d += lanes * n) {
        float left[n], right[n];
        load(x + d, left);
        load(y + d, right);
#pragma unroll
        for (int e = 0; e < n; ++e) dot += left[e] * right[e];
      }
    }
#pragma unroll
    for (int step = 1; step < lanes; step *= 2) dot += __shfl_xor_sync(0xFFFFFFFFu, dot, step);
    if (row < end && lane == 0) sum -= expf(logit - lse[all.of_lse(row, head)]) * dot;
  }
  const double total = block_sum<threads>(sum);
  if (threadIdx.x == 0) partials[static_cast<std::int64_t>(blockIdx.x) * all.heads + head] = static_cast<float>(total);
}

// True if every row begins on 16 bytes and is whole packs.
template <class T>
bool in_packs(const Tensor& x) {
  const Rows all(x);
  const bool in_steps =
      (all.batch_stride | all.position_stride | all.head_stride | std::int64_t{all.size}) % pack_of<T> == 0;
  return in_steps && aligned(x.data(), 16);
}

}  // namespace

void sink(const SinkArgs& args, const Launch& launch) {
  const Rows all(args.o);
  with_gpu_type(args.o.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("sink", in_packs<T>(args.o) ? sink_kernel<pack_of<T>, T> : sink_kernel<1, T>,
        {blocks_for(all.rows * all.heads, block_rows), threads}, launch, all, args.sink.as<const float>(),
        args.o.as<T>(), args.lse.as<float>());
  });
}

void sink_backward(const SinkBackwardArgs& args, const Launch& launch) {
  const Rows all(args.o);
  if (all.rows == 0) return;
  const RowChunks split = row_chunks(all.rows);
  float* partials = args.scratch.as<float>();
  with_gpu_type(args.o.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("sink backward",
        in_packs<T>(args.o) && in_packs<T>(args.dout) ? sink_backward_kernel<pack_of<T>, T>
                                                      : sink_backward_kernel<1, T>,
        {dim3(static_cast<unsigned>(split.chunks), static_cast<unsigned>(all.heads)), threads}, launch, all,
        Rows(args.dout), args.sink.as<const float>(), args.o.as<const T>(), args.dout.as<const T>(),
        args.lse.as<const float>(), split.rows, partials);
  });
  add_partials({partials, split.chunks, all.heads, args.dsink.as<float>()}, launch);
}

}  // namespace longstride::kernels::cuda
