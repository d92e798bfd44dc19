#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/query_key/query_key.cuh"

namespace longstride::kernels::cuda {
namespace {

constexpr int warps = 8, threads = 32 * warps;

template <class T>
struct HeadStrides {
  T* data = nullptr;
  std::int64_t batch = 0, slot = 0, head = 0;  // strides

  HeadStrides() = default;
  explicit HeadStrides(const Tensor& v) : data(v.as<T>()), batch(v.stride(0)), slot(v.stride(1)), head(v.stride(2)) {}
  __device__ T* at(std::int64_t b, std::int64_t s, std::int64_t h) const {
    return data + b * batch + s * slot + h * head;
  }
};

template <class T>
struct QueryKeyProblem {
  HeadStrides<const T> x, dy;
  HeadStrides<T> out;  // y, or dx
  std::int64_t slots, seq, first;
  const std::int64_t* first_at;
  const std::int32_t* begin;
  int heads, size;
  bool normalise;
  float scale;
  PairTurns turns;
};

template <class T>
QueryKeyProblem<T> problem_of(const QueryKeyTransform& transform, const Tensor& x, const Tensor& dy, const Tensor& out,
                              std::int64_t first, const std::int64_t* first_at, const Tensor& begin) {
  if (x.size(3) > most_transformed) throw std::logic_error("queries and keys of more than 128 elements");
  QueryKeyProblem<T> p = {};
  p.x = HeadStrides<const T>(x);
  p.dy = HeadStrides<const T>(dy);
  p.out = HeadStrides<T>(out);
  p.slots = x.size(0) * x.size(1);
  p.seq = x.size(1);
  p.first = first;
  p.first_at = first_at;
  p.begin = begin.as<const std::int32_t>();
  p.heads = static_cast<int>(x.size(2));
  p.size = static_cast<int>(x.size(3));
  p.normalise = transform.normalise;
  p.scale = static_cast<float>(transform.scale);
  p.turns = PairTurns(transform, x.size(3));
  return p;
}

// How a row is shared: each of `lanes` threads has `packs` packs of n neighbouring elements; packed: a pack is one
// load. Elements beyond the row are 0.
template <bool packed_, int n_, int lanes_, int packs_>
struct LaneLayout {
  static constexpr bool packed = packed_;
  static constexpr int n = n_, lanes = lanes_, packs = packs_;
  using Piece = float[packs][n];

  static __device__ int column(int pack) { return (pack * lanes + static_cast<int>(threadIdx.x) % lanes) * n; }

  template <class T>
  static __device__ void read(const T* row, int size, Piece& to) {
#pragma unroll
    for (int k = 0; k < packs; ++k) {
      if (packed && column(k) < size) {
        load<n>(row + column(k), to[k]);
        continue;
      }
#pragma unroll
      for (int e = 0; e < n; ++e) to[k][e] = column(k) + e < size ? to_float(row[column(k) + e]) : 0.0f;
    }
  }

  template <class T>
  static __device__ void write(T* row, int size, const Piece& from) {
#pragma unroll
    for (int k = 0; k < packs; ++k) {
      if constexpr (packed) {
        if (column(k) < size) store<n>(row + column(k), from[k]);
      } else {
#pragma unroll
        for (int e = 0; e < n; ++e)
          if (column(k) + e < size) row[column(k) + e] = from_float<T>(from[k][e]);
      }
    }
  }

  // The product over the row, in every thread that shares it and in a fixed order. All lanes of the warp call it.
  static __device__ float dot(const Piece& a, const Piece& b) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < packs; ++k)
#pragma unroll
      for (int e = 0; e < n; ++e) sum += a[k][e] * b[k][e];
#pragma unroll
    for (int offset = lanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
    return sum;
  }
};

// The rotation of a thread's pairs at one position, or its transpose.
template <class L>
struct LaneRotation {
  float cosine[L::packs][L::n / 2], sine[L::packs][L::n / 2];

  template <class T>
  __device__ LaneRotation(const QueryKeyProblem<T>& p, std::int64_t position, bool transposed) {
#pragma unroll
    for (int k = 0; k < L::packs; ++k)
#pragma unroll
      for (int i = 0; i < L::n / 2; ++i) {
        const int pair = L::column(k) / 2 + i;
        const double turns = pair < p.size / 2 ? static_cast<double>(position) * p.turns.of[pair] : 0;
        sine_and_cosine(turns, &sine[k][i], &cosine[k][i]);
        if (transposed) sine[k][i] = -sine[k][i];
      }
  }
  __device__ void apply(typename L::Piece& x) const {
#pragma unroll
    for (int k = 0; k < L::packs; ++k)
#pragma unroll
      for (int i = 0; i < L::n / 2; ++i) {
        const float a = x[k][2 * i], b = x[k][2 * i + 1];
        x[k][2 * i] = a * cosine[k][i] - b * sine[k][i];
        x[k][2 * i + 1] = a * sine[k][i] + b * cosine[k][i];
      }
  }
};

// x = h; also returns the factor.
template <class L, class T>
__device__ __forceinline__ float normalise(const QueryKeyProblem<T>& p, typename L::Piece& x) {
  const float squares = L::dot(x, x) / static_cast<float>(p.size);
  const float factor = 1.0f / sqrtf(squares + static_cast<float>(QueryKeyTransform::epsilon));
#pragma unroll
  for (int k = 0; k < L::packs; ++k)
#pragma unroll
    for (int e = 0; e < L::n; ++e) x[k][e] *= factor;
  return factor;
}

template <class L, class T>
__device__ __forceinline__ void scale(const QueryKeyProblem<T>& p, typename L::Piece& x) {
#pragma unroll
  for (int k = 0; k < L::packs; ++k)
#pragma unroll
    for (int e = 0; e < L::n; ++e) x[k][e] *= p.scale;
}

// One warp per position: the rotation is computed once for all heads, of which 32 / lanes are processed at a time.
template <class L, class T, class F>
__device__ __forceinline__ void each_head(const QueryKeyProblem<T>& p, F&& f) {
  const std::int64_t unit = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / 32;
  if (unit >= p.slots) return;  // the whole warp returns
  const std::int64_t sequence = unit / p.seq, slot = unit % p.seq;
  const std::int64_t before = p.begin != nullptr ? p.begin[unit] : 0;
  const std::int64_t position = (p.first_at != nullptr ? *p.first_at : p.first) + slot - before;
  const LaneRotation<L> rotation(p, position, p.dy.data != nullptr);
  const int group = static_cast<int>(threadIdx.x) % 32 / L::lanes;
  for (int head = group; head - group < p.heads; head += 32 / L::lanes)
    f(rotation, sequence, slot, head, head < p.heads ? p.size : 0);  // lanes beyond the heads take part in the sums
}

template <class L, class T>
__global__ void __launch_bounds__(threads) forward_kernel(const __grid_constant__ QueryKeyProblem<T> p) {
  each_head<L>(p, [&](const LaneRotation<L>& rotation, std::int64_t sequence, std::int64_t slot, int head, int size) {
    typename L::Piece x;
    L::read(p.x.at(sequence, slot, head), size, x);
    if (p.normalise) normalise<L>(p, x);
    rotation.apply(x);
    scale<L>(p, x);
    L::write(p.out.at(sequence, slot, head), size, x);
  });
}

// With g the gradient rotated back and h = x r: dx = scale r (g - h mean(g h)).
template <class L, class T>
__global__ void __launch_bounds__(threads) backward_kernel(const __grid_constant__ QueryKeyProblem<T> p) {
  each_head<L>(p, [&](const LaneRotation<L>& rotation, std::int64_t sequence, std::int64_t slot, int head, int size) {
    typename L::Piece g, h;
    L::read(p.dy.at(sequence, slot, head), size, g);
    rotation.apply(g);
    if (p.normalise) {
      L::read(p.x.at(sequence, slot, head), size, h);
      const float factor = normalise<L>(p, h);
      const float along = L::dot(g, h) / static_cast<float>(p.size);
#pragma unroll
      for (int k = 0; k < L::packs; ++k)
#pragma unroll
        for (int e = 0; e < L::n; ++e) g[k][e] = factor * (g[k][e] - h[k][e] * along);
    }
    scale<L>(p, g);
    L::write(p.out.at(sequence, slot, head), size, g);
  });
}

template <int n>
bool packs_into(const Tensor& v) {
  return v.size(3) % n == 0 && v.stride(0) % n == 0 && v.stride(1) % n == 0 && v.stride(2) % n == 0 &&
         aligned(v.data(), n * bytes_of(v.dtype()));
}

// Calls f(LaneLayout{}) for rows of this size.
template <int n, class F>
void with_layout(bool packed, std::int64_t size, F&& f) {
  if (!packed) return f(LaneLayout<false, 2, 32, most_transformed / 64>{});
  if (size <= 4 * n) return f(LaneLayout<true, n, 4, 1>{});
  if (size <= 8 * n) return f(LaneLayout<true, n, 8, 1>{});
  if (size <= 16 * n) return f(LaneLayout<true, n, 16, 1>{});
  f(LaneLayout<true, n, 32, 1>{});
}

}  // namespace

void query_key(const QueryKeyArgs& args, const Launch& launch) {
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    constexpr int n = pack_of<T>;
    const QueryKeyProblem<T> p =
        problem_of<T>(args.transform, args.x, {}, args.y, args.first, args.first_at, args.begin);
    with_layout<n>(packs_into<n>(args.x) && packs_into<n>(args.y), p.size, [&](auto layout) {
      run("query_key", forward_kernel<decltype(layout), T>, {blocks_for(p.slots, warps), threads}, launch, p);
    });
  });
}

void query_key_backward(const QueryKeyBackwardArgs& args, const Launch& launch) {
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    constexpr int n = pack_of<T>;
    const QueryKeyProblem<T> p =
        problem_of<T>(args.transform, args.x, args.dy, args.dx, args.first, nullptr, args.begin);
    const bool packed = packs_into<n>(args.x) && packs_into<n>(args.dy) && packs_into<n>(args.dx);
    with_layout<n>(packed, p.size, [&](auto layout) {
      run("query_key_backward", backward_kernel<decltype(layout), T>, {blocks_for(p.slots, warps), threads}, launch, p);
    });
  });
}

}  // namespace longstride::kernels::cuda
