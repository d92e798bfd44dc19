#include "kernels/base/add_partials.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/short_convolution/short_convolution.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

template <class T>
struct Convolution {
  const T *x, *before;
  const std::int32_t* begin;
  const float *weight, *bias;
  std::int64_t batch, n, channels;

  template <class Args>
  explicit Convolution(const Args& args)
      : x(args.x.template as<const T>()),
        before(args.before.template as<const T>()),
        begin(args.begin.template as<const std::int32_t>()),
        weight(args.weight.template as<const float>()),
        bias(args.bias.template as<const float>()),
        batch(args.x.size(0)),
        n(args.x.size(1)),
        channels(args.x.size(2)) {}

  __device__ std::int64_t first_of(std::int64_t s, std::int64_t t) const {
    return begin != nullptr ? begin[s * n + t] : 0;
  }
  // Channel c of row p as position t, whose document begins at `first`, sees it.
  __device__ float seen(std::int64_t s, std::int64_t p, std::int64_t first, std::int64_t c, int width) const {
    if (p >= 0) return p >= first ? to_float(x[(s * n + p) * channels + c]) : 0.0f;
    return first == 0 && before != nullptr ? to_float(before[(s * (width - 1) + p + width - 1) * channels + c]) : 0.0f;
  }
  template <int width>
  __device__ float sum(std::int64_t s, std::int64_t t, std::int64_t c) const {
    const std::int64_t first = first_of(s, t);
    float out = bias != nullptr ? bias[c] : 0.0f;
#pragma unroll
    for (int j = 0; j < width; ++j) out += weight[c * width + width - 1 - j] * seen(s, t - j, first, c, width);
    return out;
  }
};

// A thread per element.
template <int width, class T>
__global__ void __launch_bounds__(threads) convolution_kernel(const Convolution<T> all, T* y) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= all.batch * all.n * all.channels) return;
  const std::int64_t row = i / all.channels;
  const float p = all.template sum<width>(row / all.n, row % all.n, i % all.channels);
  y[i] = from_float<T>(p / (1.0f + expf(-p)));
}

// A thread per channel, which reads a row before it writes over it.
template <int width, class T>
__global__ void __launch_bounds__(threads) keep_kernel(const Convolution<T> all, T* after) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= all.batch * all.channels) return;
  const std::int64_t s = i / all.channels, c = i % all.channels, first = all.first_of(s, all.n - 1);
#pragma unroll
  for (int r = 0; r < width - 1; ++r)
    after[(s * (width - 1) + r) * all.channels + c] =
        from_float<T>(all.seen(s, all.n - (width - 1) + r, first, c, width));
}

// A thread per channel and chunk of rows. ring[j] is the gradient of p at row t + j. Behind the chunks' sums for the
// weight are those for the bias.
template <int width, class T>
__global__ void __launch_bounds__(threads) convolution_backward_kernel(const Convolution<T> all, const T* dy, T* dx,
                                                                       std::int64_t chunk_rows, float* partials) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.y) * threads + threadIdx.x, begin = blockIdx.x * chunk_rows,
                     rows = all.batch * all.n, end = min(begin + chunk_rows, rows);
  if (c >= all.channels) return;
  float dweight[width] = {}, dbias = 0, ring[width];
  const auto gradient = [&](std::int64_t s, std::int64_t t) {
    if (t >= all.n) return 0.0f;
    const float p = all.template sum<width>(s, t, c), sigmoid = 1.0f / (1.0f + expf(-p));
    return to_float(dy[(s * all.n + t) * all.channels + c]) * sigmoid * (1.0f + p * (1.0f - sigmoid));
  };
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t s = row / all.n, t = row % all.n;
    if (row == begin || t == 0) {
#pragma unroll
      for (int j = 1; j < width; ++j) ring[j] = gradient(s, t + j - 1);
    }
#pragma unroll
    for (int j = 0; j < width - 1; ++j) ring[j] = ring[j + 1];
    ring[width - 1] = gradient(s, t + width - 1);
    const std::int64_t first = all.first_of(s, t);
    float sum = 0;
    dbias += ring[0];
#pragma unroll
    for (int j = 0; j < width; ++j) {
      if (t + j < all.n && t >= all.first_of(s, t + j)) sum += all.weight[c * width + width - 1 - j] * ring[j];
      dweight[width - 1 - j] += ring[0] * all.seen(s, t - j, first, c, width);
    }
    dx[row * all.channels + c] = from_float<T>(sum);
  }
#pragma unroll
  for (int j = 0; j < width; ++j) partials[(blockIdx.x * all.channels + c) * width + j] = dweight[j];
  if (all.bias != nullptr) partials[(gridDim.x * width + blockIdx.x) * all.channels + c] = dbias;
}

// Calls f(std::integral_constant) with the width.
template <class F>
void with_width(std::int64_t width, F&& f) {
  if (width == 2) return f(std::integral_constant<int, 2>{});
  if (width == 3) return f(std::integral_constant<int, 3>{});
  f(std::integral_constant<int, 4>{});
}

}  // namespace

void short_convolution(const ShortConvolutionArgs& args, const Launch& launch) {
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Convolution<T> all(args);
    with_width(args.weight.size(1), [&](auto width) {
      run("short_convolution", convolution_kernel<width(), T>, {blocks_for(args.x.count(), threads), threads}, launch,
          all, args.y.as<T>());
      if (args.after.given())
        run("short_convolution", keep_kernel<width(), T>, {blocks_for(all.batch * all.channels, threads), threads},
            launch, all, args.after.as<T>());
    });
  });
}

void short_convolution_backward(const ShortConvolutionBackwardArgs& args, const Launch& launch) {
  const RowChunks split = row_chunks(args.x.size(0) * args.x.size(1));
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Convolution<T> all(args);
    const dim3 blocks(static_cast<unsigned>(split.chunks), blocks_for(all.channels, threads));
    with_width(args.weight.size(1), [&](auto width) {
      run("short_convolution_backward", convolution_backward_kernel<width(), T>, {blocks, threads}, launch, all,
          args.dy.as<const T>(), args.dx.as<T>(), split.rows, args.scratch.as<float>());
    });
  });
  const auto* partials = args.scratch.as<const float>();
  add_partials({partials, split.chunks, args.weight.count(), args.dweight.as<float>()}, launch);
  if (args.bias.given())
    add_partials(
        {partials + split.chunks * args.weight.count(), split.chunks, args.bias.count(), args.dbias.as<float>()},
        launch);
}

}  // namespace longstride::kernels::cuda
