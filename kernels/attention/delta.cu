#include "kernels/attention/delta.h"

#include <algorithm>
#include <cstdint>

#include "kernels/base/block_sum.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_types.cuh"
#include "kernels/base/head_matrix.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int block_threads = 256, row_threads = 4;  // four lanes per row, each reads 16 bytes at a time

struct DeltaCall {
  const void *o, *dout;
  std::int64_t o_batch, o_row, o_head, dout_batch, dout_row, dout_head;  // strides
  std::int64_t n, batch;
  std::uint32_t heads;
  std::int32_t size;
  bool aligned;
  float* delta;
};

template <class T>
__device__ inline float dot_of(const T* a, const T* b, int size, int lane, bool aligned) {
  constexpr int width = 16 / sizeof(T);
  float sum = 0;
#pragma unroll 2
  for (int d = lane * width; d < size; d += row_threads * width) {
    if (aligned) {
      const uint4 x = *reinterpret_cast<const uint4*>(a + d), y = *reinterpret_cast<const uint4*>(b + d);
      const T* left = reinterpret_cast<const T*>(&x);
      const T* right = reinterpret_cast<const T*>(&y);
#pragma unroll
      for (int e = 0; e < width; ++e) sum += to_float(left[e]) * to_float(right[e]);
    } else {
      for (int e = d; e < d + width && e < size; ++e) sum += to_float(a[e]) * to_float(b[e]);
    }
  }
  return sum;
}

// A block has rows of one head; consecutive blocks have neighbouring heads, whose rows are neighbours in memory.
template <class T>
__global__ __launch_bounds__(block_threads) void delta_kernel(const DeltaCall call) {
  const std::int64_t h = blockIdx.x % call.heads;
  const std::int64_t i =
      std::int64_t{blockIdx.x / call.heads} * (block_threads / row_threads) + threadIdx.x / row_threads;
  const int lane = static_cast<int>(threadIdx.x % row_threads);
  for (std::int64_t b = blockIdx.y; b < call.batch; b += gridDim.y) {
    float sum = 0;
    if (i < call.n)
      sum = dot_of(static_cast<const T*>(call.o) + b * call.o_batch + i * call.o_row + h * call.o_head,
                   static_cast<const T*>(call.dout) + b * call.dout_batch + i * call.dout_row + h * call.dout_head,
                   call.size, lane, call.aligned);
#pragma unroll
    for (int step = 1; step < row_threads; step *= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    if (i < call.n && lane == 0) call.delta[(b * call.heads + h) * call.n + i] = sum;
  }
}

// Heads [first, first + heads) of a (batch, n, heads, size) view.
template <class T>
__global__ __launch_bounds__(block_threads) void zero_kernel(T* data, std::int64_t batch_stride,
                                                             std::int64_t row_stride, std::int64_t head_stride,
                                                             std::int64_t n, std::int32_t first, std::int32_t heads,
                                                             std::int32_t size, std::int64_t count) {
  const std::int64_t x = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
  if (x >= count) return;
  const std::int64_t column = x % size, head = first + x / size % heads, row = x / size / heads;
  data[row / n * batch_stride + row % n * row_stride + head * head_stride + column] = from_float<T>(0);
}

void zero_heads(const Tensor& v, std::int32_t first, std::int32_t heads, const Launch& launch) {
  const std::int64_t count = v.size(0) * v.size(1) * heads * v.size(3);
  const std::int64_t blocks = (count + block_threads - 1) / block_threads;
  with_gpu_type(v.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("attention zero", zero_kernel<T>, {static_cast<unsigned>(blocks), block_threads}, launch, v.as<T>(),
        v.stride(0), v.stride(1), v.stride(2), v.size(1), first, heads, static_cast<std::int32_t>(v.size(3)), count);
  });
}

// A block has a head's rows, so that their sum has one order.
constexpr int sink_threads = 1024;
__global__ __launch_bounds__(sink_threads) void sink_gradient_kernel(const float* lse, const float* delta,
                                                                     std::int64_t n, std::int64_t batch,
                                                                     const float* sink, float* dsink) {
  const std::int64_t head = blockIdx.x;
  const float logit = sink[head];
  float sum = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t begin = (b * gridDim.x + head) * n;
    for (std::int64_t i = begin + threadIdx.x; i < begin + n; i += sink_threads) sum += expf(logit - lse[i]) * delta[i];
  }
  const double total = block_sum<sink_threads>(sum);
  if (threadIdx.x == 0) dsink[head] -= static_cast<float>(total);
}

// True if every position is a key of the part.
bool reaches_every_key(const AttentionPlan& plan, std::int32_t head) {
  const Pass& pass = plan.passes_of(head).front();
  const Part& part = plan.parts_of(pass).front();
  return sees_itself(part.kind) && (pass.classes > 1 || part.keys.run >= part.keys.period);
}

}  // namespace

void attention_delta(const Tensor& o, const Tensor& dout, float* delta, const Launch& launch) {
  const DeltaCall call{o.data(),
                       dout.data(),
                       o.stride(0),
                       o.stride(1),
                       o.stride(2),
                       dout.stride(0),
                       dout.stride(1),
                       dout.stride(2),
                       o.size(1),
                       o.size(0),
                       static_cast<std::uint32_t>(o.size(2)),
                       static_cast<std::int32_t>(o.size(3)),
                       rows_on_16_bytes(o) && rows_on_16_bytes(dout),
                       delta};
  constexpr std::int64_t block_rows = block_threads / row_threads, most_batch_blocks = 65535;
  const dim3 blocks(static_cast<unsigned>((call.n + block_rows - 1) / block_rows * call.heads),
                    static_cast<unsigned>(std::min(call.batch, most_batch_blocks)));
  with_gpu_type(o.dtype(), [&](auto zero) {
    run("attention delta", delta_kernel<decltype(zero)>, {blocks, block_threads}, launch, call);
  });
}

void attention_sink_gradient(const AttentionBackwardArgs& args, const float* delta, const Launch& launch) {
  run("sink gradient", sink_gradient_kernel, {static_cast<unsigned>(args.q.size(2)), sink_threads}, launch,
      args.lse.as<const float>(), delta, args.q.size(1), args.q.size(0), args.sink.as<const float>(),
      args.dsink.as<float>());
}

void attention_zero_unreached(const AttentionBackwardArgs& args, const Launch& launch) {
  const auto heads = static_cast<std::int32_t>(args.q.size(2));
  for (std::int32_t first = 0, end; first < heads; first = end) {
    end = first + 1;
    if (reaches_every_key(*args.plan, first)) continue;
    while (end < heads && !reaches_every_key(*args.plan, end)) ++end;
    zero_heads(args.dk, first, end - first, launch);
    zero_heads(args.dv, first, end - first, launch);
  }
}

}  // namespace longstride::kernels::cuda
