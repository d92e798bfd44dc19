// A thread walks along a run of rows with a few neighbouring channels, so that every row is read once: the rows that a
// position sees are in its registers.
#include <algorithm>
#include <initializer_list>

#include "kernels/base/add_partials.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/short_convolution/short_convolution.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int lanes = 32, walkers = 8, threads = lanes * walkers;  // a block: packs of channels, and runs of rows
constexpr int taps = static_cast<int>(widest_convolution), forward_rows = 32, ahead = 4;

template <class T>
struct Convolution {
  const T *x, *before;
  const std::int32_t* begin;
  const float *weight, *bias;
  std::int64_t batch, n, channels;
  int width;

  template <class Args>
  explicit Convolution(const Args& args)
      : x(args.x.template as<const T>()),
        before(args.before.template as<const T>()),
        begin(args.begin.template as<const std::int32_t>()),
        weight(args.weight.template as<const float>()),
        bias(args.bias.template as<const float>()),
        batch(args.x.size(0)),
        n(args.x.size(1)),
        channels(args.x.size(2)),
        width(static_cast<int>(args.weight.size(1))) {}

  // The rows before position t that it sees, its own document's; the first one continues `before`.
  __device__ int seen_before(std::int64_t s, std::int64_t t) const {
    const std::int64_t first = begin != nullptr ? begin[s * n + t] : 0;
    const auto most = static_cast<std::int64_t>(width - 1);
    return static_cast<int>(first == 0 || t - first > most ? most : t - first);
  }
  // Row p of a sequence, from channel c on; p may be before the first.
  template <int V>
  __device__ void row(std::int64_t s, std::int64_t p, std::int64_t c, float (&to)[V]) const {
    if (p >= 0) return load<V>(x + (s * n + p) * channels + c, to);
    if (before != nullptr && p + width - 1 >= 0)
      return load<V>(before + (s * (width - 1) + p + width - 1) * channels + c, to);
#pragma unroll
    for (int v = 0; v < V; ++v) to[v] = 0;
  }
};

// A thread's channels: weights by distance, and the last rows.
template <class T, int V>
struct Walk {
  const Convolution<T>& all;
  const std::int64_t c;
  float weight[taps][V], bias[V], last[taps - 1][V];

  __device__ Walk(const Convolution<T>& of, std::int64_t channel) : all(of), c(channel) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      bias[v] = all.bias != nullptr ? all.bias[c + v] : 0.0f;
#pragma unroll
      for (int j = 0; j < taps; ++j)
        weight[j][v] = j < all.width ? all.weight[(c + v) * all.width + all.width - 1 - j] : 0.0f;
    }
  }
  // Before row t.
  __device__ void start(std::int64_t s, std::int64_t t) {
#pragma unroll
    for (int j = 1; j < taps; ++j) all.row(s, t - j, c, last[j - 1]);
  }
  // p of the row `own`, before which `near` rows are seen.
  __device__ void sum(const float (&own)[V], int near, float (&p)[V]) const {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      p[v] = bias[v] + weight[0][v] * own[v];
#pragma unroll
      for (int j = 1; j < taps; ++j)
        if (j <= near) p[v] += weight[j][v] * last[j - 1][v];
    }
  }
  __device__ void pass(const float (&own)[V]) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
#pragma unroll
      for (int j = taps - 2; j > 0; --j) last[j][v] = last[j - 1][v];
      last[0][v] = own[v];
    }
  }
};

__device__ inline std::int64_t channel_of(int pack) {
  return (static_cast<std::int64_t>(blockIdx.y) * lanes + static_cast<int>(threadIdx.x) % lanes) * pack;
}
__device__ inline int walker() { return static_cast<int>(threadIdx.x) / lanes; }

// blockIdx.x: runs of a sequence, blockIdx.z: the sequence.
template <class T, int V>
__global__ void __launch_bounds__(threads) convolution_kernel(const Convolution<T> all, T* y) {
  const std::int64_t c = channel_of(V), s = blockIdx.z,
                     begin = (static_cast<std::int64_t>(blockIdx.x) * walkers + walker()) * forward_rows,
                     end = min(begin + forward_rows, all.n);
  if (c >= all.channels || begin >= all.n) return;
  Walk<T, V> walk(all, c);
  walk.start(s, begin);
  for (std::int64_t at = begin; at < end; at += ahead) {
    float own[ahead][V];
#pragma unroll
    for (int i = 0; i < ahead; ++i)
      if (at + i < end) all.row(s, at + i, c, own[i]);
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      if (at + i >= end) break;
      float p[V];
      walk.sum(own[i], all.seen_before(s, at + i), p);
#pragma unroll
      for (int v = 0; v < V; ++v) p[v] = p[v] / (1.0f + expf(-p[v]));
      store<V>(y + (s * all.n + at + i) * all.channels + c, p);
      walk.pass(own[i]);
    }
  }
}

// A thread per channel, which reads a row before it writes over it.
template <class T>
__global__ void __launch_bounds__(threads) keep_kernel(const Convolution<T> all, T* after) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= all.batch * all.channels) return;
  const std::int64_t s = i / all.channels, c = i % all.channels;
  const int kept = all.width - 1, seen = all.seen_before(s, all.n - 1) + 1;
  for (int r = 0; r < kept; ++r) {
    float x[1] = {};
    if (kept - r <= seen) all.row(s, all.n - kept + r, c, x);
    after[(s * kept + r) * all.channels + c] = from_float<T>(x[0]);
  }
}

// A thread's gradients: of the last rows, to which later ones add, and of weights and bias.
template <class T, int V>
struct BackwardWalk : Walk<T, V> {
  using Walk<T, V>::Walk, Walk<T, V>::all, Walk<T, V>::c, Walk<T, V>::weight, Walk<T, V>::last;
  const T* dy;
  T* dx;
  float pending[taps][V], dweight[taps][V] = {}, dbias[V] = {};

  __device__ void store_row(std::int64_t s, std::int64_t t, const float (&d)[V]) const {
    store<V>(dx + (s * all.n + t) * all.channels + c, d);
  }
  // Row t, whose gradient is `above`. It counts for the weights if it is the walk's own.
  __device__ void add_row(std::int64_t s, std::int64_t t, const float (&own)[V], const float (&above)[V], bool counts) {
    const int near = all.seen_before(s, t);
    float p[V];
    this->sum(own, near, p);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const float sigmoid = 1.0f / (1.0f + expf(-p[v])), g = above[v] * sigmoid * (1.0f + p[v] * (1.0f - sigmoid)),
                  counted = counts ? g : 0.0f;
#pragma unroll
      for (int j = taps - 1; j > 0; --j) {
        pending[j][v] = pending[j - 1][v];
        if (j > near) continue;
        pending[j][v] += weight[j][v] * g;
        dweight[j][v] += counted * last[j - 1][v];
      }
      pending[0][v] = weight[0][v] * g;
      dweight[0][v] += counted * own[v];
      dbias[v] += counted;
    }
    this->pass(own);
  }
  // Rows [begin, end) of a sequence; those behind them add to their gradients.
  __device__ void run(std::int64_t s, std::int64_t begin, std::int64_t end) {
    this->start(s, begin);
    const std::int64_t beyond = min(end + taps - 1, all.n);
    for (std::int64_t at = begin; at < beyond; at += 2) {
      float own[2][V], above[2][V];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (at + i >= beyond) break;
        all.row(s, at + i, c, own[i]);
        load<V>(dy + (s * all.n + at + i) * all.channels + c, above[i]);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::int64_t t = at + i;
        if (t >= beyond) break;
        add_row(s, t, own[i], above[i], t < end);
        if (t - (taps - 1) >= begin) store_row(s, t - (taps - 1), pending[taps - 1]);
      }
    }
    // The last rows of the sequence, behind which there is nothing.
#pragma unroll
    for (int j = taps - 2; j >= 0; --j)
      if (beyond - 1 - j >= begin && beyond - 1 - j < end) store_row(s, beyond - 1 - j, pending[j]);
  }
};

// A block has a chunk of rows, which its walkers share. Behind the chunks' sums for the weight are those for the bias.
template <class T, int V>
__global__ void __launch_bounds__(threads) convolution_backward_kernel(const Convolution<T> all, const T* dy, T* dx,
                                                                       std::int64_t chunk_rows, float* partials) {
  __shared__ float sums[walkers][lanes * V];
  const std::int64_t c = channel_of(V), rows = all.batch * all.n, share = (chunk_rows + walkers - 1) / walkers,
                     first = blockIdx.x * chunk_rows, chunk_end = min(first + chunk_rows, rows);
  const bool there = c < all.channels;
  BackwardWalk<T, V> walk(all, there ? c : 0);
  walk.dy = dy;
  walk.dx = dx;
  const std::int64_t end = min(first + (walker() + 1) * share, chunk_end);
  for (std::int64_t row = first + walker() * share; there && row < end;) {
    const std::int64_t s = row / all.n, t = row % all.n, count = min(end - row, all.n - t);
    walk.run(s, t, t + count);
    row += count;
  }
  const int own = static_cast<int>(threadIdx.x) % lanes * V;
  const auto add_up = [&](const float(&of)[V], auto&& place) {
    __syncthreads();
#pragma unroll
    for (int v = 0; v < V; ++v) sums[walker()][own + v] = of[v];
    __syncthreads();
    if (walker() > 0 || !there) return;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      float sum = 0;
      for (int w = 0; w < walkers; ++w) sum += sums[w][own + v];
      partials[place(v)] = sum;
    }
  };
#pragma unroll
  for (int j = 0; j < taps; ++j)
    if (j < all.width)
      add_up(walk.dweight[j],
             [&](int v) { return (blockIdx.x * all.channels + c + v) * all.width + all.width - 1 - j; });
  if (all.bias != nullptr)
    add_up(walk.dbias, [&](int v) {
      return (static_cast<std::int64_t>(gridDim.x) * all.width + blockIdx.x) * all.channels + c + v;
    });
}

// Calls f(T, number of channels per thread): four, or one where rows are not aligned.
template <class Args, class F>
void with_pack(const Args& args, std::initializer_list<Tensor> rows, F&& f) {
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    constexpr int pack = 4;
    const bool packed = args.x.size(2) % pack == 0 && std::all_of(rows.begin(), rows.end(), [&](const Tensor& t) {
                          return !t.given() || aligned(t.data(), pack * sizeof(T));
                        });
    packed ? f(zero, std::integral_constant<int, pack>{}) : f(zero, std::integral_constant<int, 1>{});
  });
}

}  // namespace

void short_convolution(const ShortConvolutionArgs& args, const Launch& launch) {
  with_pack(args, {args.x, args.y, args.before}, [&](auto zero, auto pack) {
    using T = decltype(zero);
    const Convolution<T> all(args);
    const dim3 blocks(blocks_for(all.n, walkers * forward_rows), blocks_for(all.channels, lanes * pack()),
                      static_cast<unsigned>(all.batch));
    run("short_convolution", convolution_kernel<T, pack()>, {blocks, threads}, launch, all, args.y.as<T>());
    if (args.after.given())
      run("short_convolution", keep_kernel<T>, {blocks_for(all.batch * all.channels, threads), threads}, launch, all,
          args.after.as<T>());
  });
}

void short_convolution_backward(const ShortConvolutionBackwardArgs& args, const Launch& launch) {
  const RowChunks split = row_chunks(args.x.size(0) * args.x.size(1));
  with_pack(args, {args.x, args.dy, args.dx, args.before}, [&](auto zero, auto pack) {
    using T = decltype(zero);
    const Convolution<T> all(args);
    const dim3 blocks(static_cast<unsigned>(split.chunks), blocks_for(all.channels, lanes * pack()));
    run("short_convolution_backward", convolution_backward_kernel<T, pack()>, {blocks, threads}, launch, all,
        args.dy.as<const T>(), args.dx.as<T>(), split.rows, args.scratch.as<float>());
  });
  const auto* partials = args.scratch.as<const float>();
  add_partials({partials, split.chunks, args.weight.count(), args.dweight.as<float>()}, launch);
  if (args.bias.given())
    add_partials(
        {partials + split.chunks * args.weight.count(), split.chunks, args.bias.count(), args.dbias.as<float>()},
        launch);
}

}  // namespace longstride::kernels::cuda
