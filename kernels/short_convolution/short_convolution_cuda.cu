// A thread walks along a run of rows with a few neighbouring channels, so that every row is read once: the rows that a
// position sees are in its registers.
#include <algorithm>
#include <initializer_list>

#include "kernels/base/add_partials.cuh"
#include "kernels/base/approximate.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/short_convolution/short_convolution.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int lanes = 32, walkers = 8, threads = lanes * walkers;  // a block: packs of channels, and runs of rows
// Backward a walker sees six rows that are others', so that its run is longer.
constexpr int backward_walkers = 4, backward_threads = lanes * backward_walkers;
constexpr int taps = static_cast<int>(widest_convolution), forward_rows = 32, ahead = 4, ahead_backward = 4;

// Rounding to 16 bits is coarser than the approximations.
template <class T>
__device__ __forceinline__ float sigmoid(float p) {
  if constexpr (sizeof(T) == 4) return 1.0f / (1.0f + expf(-p));
  return reciprocal_approx(1.0f + exp2_approx(-log2_e * p));
}

// V neighbours as they are in memory: what is made of them would wait for them.
template <class T, int V>
struct Raw {
  std::conditional_t<V == 1, T, Words<T, V>> value;

  __device__ void fetch(const T* from) {
    if constexpr (V == 1)
      value = *from;
    else
      value = read<V>(from);
  }
  __device__ void get(float (&to)[V]) const {
    if constexpr (V == 1)
      to[0] = to_float(value);
    else
      unpack(value, to);
  }
};

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

  // True if every position sees all that the taps reach, zeros before the first.
  __device__ bool plain() const { return begin == nullptr && width == taps; }
  // The rows before position t that it sees, its own document's; the first one continues `before`.
  __device__ int seen_before(std::int64_t s, std::int64_t t) const {
    if (begin == nullptr) return width - 1;
    const std::int64_t first = begin[s * n + t], most = width - 1;
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
__global__ void __launch_bounds__(threads, sizeof(T) == 2 ? 3 : 2) convolution_kernel(const Convolution<T> all, T* y) {
  const std::int64_t c = channel_of(V), s = blockIdx.z,
                     begin = (static_cast<std::int64_t>(blockIdx.x) * walkers + walker()) * forward_rows,
                     end = min(begin + forward_rows, all.n);
  if (c >= all.channels || begin >= all.n) return;
  Walk<T, V> walk(all, c);
  const T* from = all.x + (s * all.n + begin) * all.channels + c;
  T* to = y + (s * all.n + begin) * all.channels + c;
  Raw<T, V> next[ahead];
  const auto fetch = [&](std::int64_t at) {
#pragma unroll
    for (int i = 0; i < ahead; ++i, from += all.channels)
      if (at + i < end) next[i].fetch(from);
  };
  fetch(begin);
  walk.start(s, begin);
  Raw<T, V> now[ahead];
  const auto write = [&](auto whole, std::int64_t at) {
#pragma unroll
    for (int i = 0; i < ahead; ++i, to += all.channels) {
      if (!whole && at + i >= end) break;
      float own[V], p[V];
      now[i].get(own);
      walk.sum(own, whole ? taps - 1 : all.seen_before(s, at + i), p);
#pragma unroll
      for (int v = 0; v < V; ++v) p[v] *= sigmoid<T>(p[v]);
      store<V>(to, p);
      walk.pass(own);
    }
  };
  for (std::int64_t at = begin; at < end; at += ahead) {
#pragma unroll
    for (int i = 0; i < ahead; ++i) now[i] = next[i];
    fetch(at + ahead);
    if (all.plain() && at + ahead <= end)
      write(std::true_type{}, at);
    else
      write(std::false_type{}, at);
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

  // A row, before which `near` rows are seen. It counts for the weights if it is the walk's own.
  __device__ __forceinline__ void add_row(const float (&own)[V], const float (&above)[V], int near, bool counts) {
    float p[V];
    this->sum(own, near, p);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const float share = sigmoid<T>(p[v]), g = above[v] * share * (1.0f + p[v] * (1.0f - share)),
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
    const std::int64_t beyond = min(end + taps - 1, all.n), first = (s * all.n + begin) * all.channels + c;
    const T *from = all.x + first, *from_above = dy + first;
    T* to = dx + first;
    Raw<T, V> next[ahead_backward], next_above[ahead_backward];
    const auto fetch = [&](std::int64_t at) {
#pragma unroll
      for (int i = 0; i < ahead_backward; ++i, from += all.channels, from_above += all.channels) {
        if (at + i >= beyond) continue;
        next[i].fetch(from);
        next_above[i].fetch(from_above);
      }
    };
    fetch(begin);
    this->start(s, begin);
    Raw<T, V> now[ahead_backward], now_above[ahead_backward];
    // whole: all rows are the walk's own, see all before them and complete another's gradient.
    const auto add = [&](auto whole, std::int64_t at) {
#pragma unroll
      for (int i = 0; i < ahead_backward; ++i) {
        const std::int64_t t = at + i;
        if (!whole && t >= beyond) break;
        float own[V], above[V];
        now[i].get(own);
        now_above[i].get(above);
        add_row(own, above, whole ? taps - 1 : all.seen_before(s, t), whole || t < end);
        if (!whole && t - (taps - 1) < begin) continue;
        store<V>(to, pending[taps - 1]);
        to += all.channels;
      }
    };
    for (std::int64_t at = begin; at < beyond; at += ahead_backward) {
#pragma unroll
      for (int i = 0; i < ahead_backward; ++i) now[i] = next[i], now_above[i] = next_above[i];
      fetch(at + ahead_backward);
      if (all.plain() && at >= begin + taps - 1 && at + ahead_backward <= end)
        add(std::true_type{}, at);
      else
        add(std::false_type{}, at);
    }
    // The last rows of the sequence, behind which there is nothing.
#pragma unroll
    for (int j = taps - 2; j >= 0; --j) {
      if (beyond - 1 - j < begin || beyond - 1 - j >= end) continue;
      store<V>(to, pending[j]);
      to += all.channels;
    }
  }
};

// A block has a chunk of rows, which its walkers share. Behind the chunks' sums for the weight are those for the bias.
template <class T, int V>
__global__ void __launch_bounds__(backward_threads, sizeof(T) == 2 ? 4 : 2)
    convolution_backward_kernel(const Convolution<T> all, const T* dy, T* dx, std::int64_t chunk_rows,
                                float* partials) {
  __shared__ float sums[backward_walkers][lanes * V];
  const std::int64_t c = channel_of(V), rows = all.batch * all.n,
                     share = (chunk_rows + backward_walkers - 1) / backward_walkers, first = blockIdx.x * chunk_rows,
                     chunk_end = min(first + chunk_rows, rows);
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
      for (int w = 0; w < backward_walkers; ++w) sum += sums[w][own + v];
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
    run("short_convolution_backward", convolution_backward_kernel<T, pack()>, {blocks, backward_threads}, launch, all,
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
