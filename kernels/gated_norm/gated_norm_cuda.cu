#include <algorithm>
#include <initializer_list>

#include "kernels/base/add_partials.cuh"
#include "kernels/base/approximate.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/gated_norm/gated_norm.h"

namespace longstride::kernels::cuda {
namespace {

// A group of lanes shares a row: each has packs of V neighbouring elements, `lanes` packs apart, P of them at most.
// Rows of 256 16-bit elements and fewer have one pack a lane; rows whose size is no multiple of a pack have single
// elements.
constexpr int threads = 256;

// Rounding to 16 bits is coarser than the approximations.
template <class T>
__device__ __forceinline__ float sigmoid(float x) {
  if constexpr (sizeof(T) == 4) return 1.0f / (1.0f + expf(-x));
  return reciprocal_approx(1.0f + exp2_approx(-log2_e * x));
}

template <int V, int P>
struct Row {
  float value[P][V];

  template <class T>
  __device__ void load(const T* from, int lane, int lanes, int size) {
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int at = (lane + p * lanes) * V;
      if (at < size)
        cuda::load<V>(from + at, value[p]);
      else
        clear(value[p]);
    }
  }
  template <class T>
  __device__ void store(T* to, int lane, int lanes, int size) const {
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int at = (lane + p * lanes) * V;
      if (at < size) cuda::store<V>(to + at, value[p]);
    }
  }
  // f(element of each row).
  template <class F>
  __device__ static void each(F&& f) {
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int v = 0; v < V; ++v) f(p, v);
  }

 private:
  __device__ static void clear(float (&x)[V]) {
#pragma unroll
    for (int v = 0; v < V; ++v) x[v] = 0;
  }
};

// The sum over a group of lanes, in every lane.
__device__ __forceinline__ float group_sum(float x, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, offset);
  return x;
}

template <class T>
struct Norm {
  const T *x, *gate;
  const float* gain;
  std::int64_t rows;
  int size, sets, lanes;
  bool gate_first;

  template <class Args>
  Norm(const Args& args, int pack)
      : x(args.x.template as<const T>()),
        gate(args.gate.template as<const T>()),
        gain(args.gain.template as<const float>()),
        rows(args.x.size(0)),
        size(static_cast<int>(args.x.size(1))),
        sets(args.gain.given() ? static_cast<int>(args.gain.count() / args.x.size(1)) : 1),
        lanes(1),
        gate_first(args.gate_first) {
    while (lanes < 32 && lanes * pack < size) lanes *= 2;
  }
  __device__ int lane() const { return static_cast<int>(threadIdx.x) % lanes; }
  __device__ int group() const { return static_cast<int>(threadIdx.x) / lanes; }
  __device__ int groups() const { return threads / lanes; }
};

// A row on its way: h before its gain, the gate's value, 1 without one, and 1 / sqrt(mean + eps).
template <class T, int V, int P>
struct Normed {
  Row<V, P> x, gate, h, gain;
  float inverse = 1;

  // All lanes of a warp, also those without a row.
  __device__ Normed(const Norm<T>& all, std::int64_t row, bool there) {
    const std::int64_t at = (there ? row : 0) * all.size;
    const int lane = all.lane(), size = there ? all.size : 0;
    x.load(all.x + at, lane, all.lanes, size);
    if (all.gate != nullptr) gate.load(all.gate + at, lane, all.lanes, size);
    if (all.gain != nullptr)
      gain.load(all.gain + (all.sets > 1 ? row % all.sets * all.size : 0), lane, all.lanes, size);
    float squares = 0;
    Row<V, P>::each([&](int p, int v) {
      float& u = h.value[p][v];
      u = x.value[p][v];
      if (all.gate_first) u *= gate.value[p][v] * sigmoid<T>(gate.value[p][v]);
      squares += u * u;
    });
    if (all.gain == nullptr) return;
    inverse = rsqrt_of(group_sum(squares, all.lanes) / static_cast<float>(all.size));
    Row<V, P>::each([&](int p, int v) { h.value[p][v] *= inverse; });
  }
  __device__ static float rsqrt_of(float mean) { return 1.0f / sqrtf(mean + static_cast<float>(gated_norm_epsilon)); }
};

template <class T, int V, int P>
__global__ void __launch_bounds__(threads) gated_norm_kernel(const Norm<T> all, T* y) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * all.groups() + all.group();
  const bool there = row < all.rows;
  Normed<T, V, P> of(all, row, there);
  Row<V, P>::each([&](int p, int v) {
    float& h = of.h.value[p][v];
    if (all.gain != nullptr) h *= of.gain.value[p][v];
    if (all.gate != nullptr && !all.gate_first) h *= of.gate.value[p][v] * sigmoid<T>(of.gate.value[p][v]);
  });
  if (there) of.h.store(y + row * all.size, all.lane(), all.lanes, all.size);
}

// The rows of a set of gains, blockIdx.y: a block per chunk of them, which its groups share. A lane sums dgain of its
// elements, and the block adds those of its groups in order. dx may be dy.
template <class T, int V, int P>
__global__ void __launch_bounds__(threads)
    gated_norm_backward_kernel(const Norm<T> all, const T* dy_rows, T* dx, T* dgate, std::int64_t chunk_rows,
                               float* partials) {
  __shared__ float sums[threads * V * P];  // (groups, size)
  const std::int64_t of_set = all.rows / all.sets, begin = blockIdx.x * chunk_rows,
                     end = min(begin + chunk_rows, of_set);
  Row<V, P> dgain = {};
  for (std::int64_t first = begin; first < end; first += all.groups()) {
    const bool there = first + all.group() < end;
    const std::int64_t row = (there ? first + all.group() : first) * all.sets + blockIdx.y, at = row * all.size;
    Row<V, P> dy, of_gate;
    dy.load(dy_rows + at, all.lane(), all.lanes, there ? all.size : 0);  // before the sums of x are waited for
    Normed<T, V, P> of(all, row, there);
    float along = 0;
    // dy becomes the gradient of h gain, then of x.
    Row<V, P>::each([&](int p, int v) {
      const float h = of.h.value[p][v], g = of.gate.value[p][v], scale = all.gain != nullptr ? of.gain.value[p][v] : 1;
      float& u = dy.value[p][v];
      if (all.gate != nullptr && !all.gate_first) {
        const float s = sigmoid<T>(g);
        of_gate.value[p][v] = u * h * scale * s * (1.0f + g * (1.0f - s));
        u *= g * s;
      }
      dgain.value[p][v] += u * h;
      u *= scale;
      along += u * h;
    });
    if (all.gain != nullptr) along = group_sum(along, all.lanes) / static_cast<float>(all.size);
    Row<V, P>::each([&](int p, int v) {
      float& u = dy.value[p][v];
      if (all.gain != nullptr) u = of.inverse * (u - of.h.value[p][v] * along);
      if (!all.gate_first) return;
      const float g = of.gate.value[p][v], s = sigmoid<T>(g);
      of_gate.value[p][v] = u * of.x.value[p][v] * s * (1.0f + g * (1.0f - s));
      u *= g * s;
    });
    if (!there) continue;
    dy.store(dx + at, all.lane(), all.lanes, all.size);
    if (all.gate != nullptr) of_gate.store(dgate + at, all.lane(), all.lanes, all.size);
  }
  if (all.gain == nullptr) return;
  dgain.store(sums + all.group() * all.size, all.lane(), all.lanes, all.size);
  __syncthreads();
  for (int j = static_cast<int>(threadIdx.x); j < all.size; j += threads) {
    float sum = 0;
    for (int g = 0; g < all.groups(); ++g) sum += sums[g * all.size + j];
    partials[(static_cast<std::int64_t>(blockIdx.x) * all.sets + blockIdx.y) * all.size + j] = sum;
  }
}

// Calls f(T, elements per pack, packs per lane).
template <class Args, class F>
void with_packs(const Args& args, std::initializer_list<Tensor> rows, F&& f) {
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    constexpr int pack = pack_of<T>, single = static_cast<int>(widest_gated_row) / 32;
    const bool packed =
        args.x.size(1) % pack == 0 && args.x.size(1) <= 32 * pack &&
        (!args.gain.given() || aligned(args.gain.data(), 16)) &&
        std::all_of(rows.begin(), rows.end(), [](const Tensor& t) { return !t.given() || aligned(t.data(), 16); });
    if (packed)
      f(zero, std::integral_constant<int, pack>{}, std::integral_constant<int, 1>{});
    else
      f(zero, std::integral_constant<int, 1>{}, std::integral_constant<int, single>{});
  });
}

}  // namespace

void gated_norm(const GatedNormArgs& args, const Launch& launch) {
  with_packs(args, {args.x, args.gate, args.y}, [&](auto zero, auto pack, auto packs) {
    using T = decltype(zero);
    const Norm<T> all(args, pack());
    run("gated_norm", gated_norm_kernel<T, pack(), packs()>, {blocks_for(all.rows, threads / all.lanes), threads},
        launch, all, args.y.as<T>());
  });
}

void gated_norm_backward(const GatedNormBackwardArgs& args, const Launch& launch) {
  with_packs(args, {args.x, args.gate, args.dy, args.dx, args.dgate}, [&](auto zero, auto pack, auto packs) {
    using T = decltype(zero);
    const Norm<T> all(args, pack());
    const RowChunks split = row_chunks(all.rows / all.sets);
    const dim3 blocks(static_cast<unsigned>(split.chunks), static_cast<unsigned>(all.sets));
    run("gated_norm_backward", gated_norm_backward_kernel<T, pack(), packs()>, {blocks, threads}, launch, all,
        args.dy.as<const T>(), args.dx.as<T>(), args.dgate.as<T>(), split.rows, args.scratch.as<float>());
  });
  if (!args.gain.given()) return;
  const RowChunks split = row_chunks(args.x.size(0) * args.x.size(1) / args.gain.count());
  add_partials({args.scratch.as<const float>(), split.chunks, args.gain.count(), args.dgain.as<float>()}, launch);
}

}  // namespace longstride::kernels::cuda
