// Features of 16-bit rows and their gradients (feature_fragments.cuh).
#include "kernels/base/cuda_types.cuh"
#include "kernels/features/feature_fragments.cuh"

namespace longstride::kernels::cuda::scanning {
namespace fragments {
namespace {

// exponents: c is written. rows: c is each row's largest exponent. given: c is read.
enum class Stabiliser : std::uint8_t { exponents, rows, given };

// D: d, padded. Trigonometric: their functions take registers.
template <class T, int D, bool Trigonometric>
struct Rows {
  static constexpr int groups = D / depth;
  const FeatureCall& call;
  const Weights<T> weights;
  Words x[strips][groups];
  float half[strips][2], top[strips][2];  // |x'|^2 / 2, and c, of rows lane / 4 and + 8

  __device__ Rows(const FeatureCall& of_call, int padded)
      : call(of_call), weights{reinterpret_cast<uint4*>(memory), groups, padded / block_columns} {}

  __device__ void set_weights(int head) const {
    const float* const from = call.projection + static_cast<std::int64_t>(head) * call.m * call.d;
    weights.set([&](int channel, int row) {
      return row < call.m && channel < call.d ? from[static_cast<std::int64_t>(row) * call.d + channel] : 0.0f;
    });
  }
  __device__ void load(const RowPlace& place) {
    const T* const from = place.rows_of<const T>(call.x);
#pragma unroll
    for (int s = 0; s < strips; ++s) {
      float sum[2] = {};
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        x[s][g] = load_words(from, call.x.row, s, g * depth, call.d, place.count);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const uint4& word = r == 0 ? x[s][g].low : x[s][g].high;
          for (const std::uint32_t pair : {word.x, word.y, word.z, word.w}) {
            const float2 e = unpack<T>(pair);
            sum[r] += e.x * e.x + e.y * e.y;
          }
        }
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        for (int step = 1; step < 4; step *= 2) sum[r] += __shfl_xor_sync(~0u, sum[r], step);
        half[s][r] = 0.5f * call.scale * call.scale * sum[r];
      }
    }
  }
  // w_i . x' of a block of features.
  __device__ __forceinline__ void project(float (&d)[strips][4], int block) const {
    asm volatile("" ::: "memory");  // words of later blocks are not read earlier, for which registers do not suffice
#pragma unroll
    for (int s = 0; s < strips; ++s)
#pragma unroll
      for (float& e : d[s]) e = 0;
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      const uint4 high = weights.word(block, g, false), low = weights.word(block, g, true);
#pragma unroll
      for (int s = 0; s < strips; ++s) {
        multiply<T>(d[s], x[s][g], high);
        multiply<T>(d[s], x[s][g], low);
      }
    }
#pragma unroll
    for (int s = 0; s < strips; ++s)
#pragma unroll
      for (float& e : d[s]) e *= call.scale;
  }
  __device__ void set_exponents() {
#pragma unroll
    for (int s = 0; s < strips; ++s)
#pragma unroll
      for (float& e : top[s]) e = call.kind == FeatureKind::softmax ? -INFINITY : 0.0f;
#pragma unroll 2
    for (int block = 0; block < weights.blocks && call.kind == FeatureKind::softmax; ++block) {
      float d[strips][4];
      project(d, block);
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (block * block_columns + this_lane() % 4 * 2 + e < call.m)
#pragma unroll
          for (int s = 0; s < strips; ++s)
#pragma unroll
            for (int r = 0; r < 2; ++r) top[s][r] = fmaxf(top[s][r], d[s][2 * r + e]);
    }
#pragma unroll
    for (int s = 0; s < strips; ++s)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float& e = top[s][r];
        for (int step = 1; step < 4; step *= 2) e = fmaxf(e, __shfl_xor_sync(~0u, e, step));
        e = call.kind == FeatureKind::softmax ? e - half[s][r] : half[s][r];
      }
  }
  // f(strip, which of its rows a lane has, the row's c).
  template <class F>
  __device__ void each_c(const RowPlace& place, F&& f) {
    float* const c = call.c + static_cast<std::int64_t>(place.unit) * call.n + place.first;
#pragma unroll
    for (int s = 0; s < strips; ++s)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = s * 16 + this_lane() / 4 + 8 * r;
        if (row < place.count) f(top[s][r], c[row]);
      }
  }

  // Features [first, +32): a quad exchanges its pairs, so that a lane stores eight neighbours.
  template <class F>
  __device__ void store(const RowPlace& place, float (&d)[4][strips][4], int first, int behind, F&& of) const {
    T* const to = place.rows_of<T>(call.features) + behind;
    const int c = first + this_lane() % 4 * 8;
#pragma unroll
    for (int s = 0; s < strips; ++s)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        std::uint32_t v[4];
#pragma unroll
        for (int b = 0; b < 4; ++b) v[b] = pack<T>(of(d[b][s][2 * r], s, r), of(d[b][s][2 * r + 1], s, r));
        transpose_quad(v);
        const int row = s * 16 + this_lane() / 4 + 8 * r;
        if (row < place.count && c < call.m)
          *reinterpret_cast<uint4*>(to + row * call.features.row + c) = make_uint4(v[0], v[1], v[2], v[3]);
      }
  }
  __device__ void write(const RowPlace& place) const {
#pragma unroll 1
    for (int block = 0; block < weights.blocks; block += 4) {
      float d[4][strips][4];
#pragma unroll
      for (int b = 0; b < 4; ++b) project(d[b], block + b);
      const int first = block * block_columns;
      if (call.kind == FeatureKind::softmax)
        store(place, d, first, 0, [&](float e, int s, int r) { return expf(e - half[s][r] - top[s][r]); });
      if (call.kind == FeatureKind::relu)
        store(place, d, first, 0, [](float e, int, int) { return fmaxf(e, 0.0f) + 0.001f; });
      if constexpr (Trigonometric) {
        store(place, d, first, 0, [&](float e, int s, int r) { return cosf(e) * expf(half[s][r] - top[s][r]); });
        store(place, d, first, call.m, [&](float e, int s, int r) { return sinf(e) * expf(half[s][r] - top[s][r]); });
      }
    }
  }
};

template <class T, int D, bool Trigonometric>
__global__ __launch_bounds__(block_threads, 2) void features_kernel(const __grid_constant__ FeatureCall call,
                                                                    const Stabiliser stabiliser, const int padded,
                                                                    const int tasks) {
  Rows<T, D, Trigonometric> rows(call, padded);
  each_task(
      call, tasks, [&](int head) { rows.set_weights(head); },
      [&](const RowPlace& place) {
        rows.load(place);
        if (stabiliser == Stabiliser::given)
          rows.each_c(place, [](float& top, float c) { top = c; });
        else
          rows.set_exponents();
        if (stabiliser == Stabiliser::exponents)
          rows.each_c(place, [](float top, float& c) {
            if (this_lane() % 4 == 0) c = top;
          });
        else
          rows.write(place);
      });
}

// dx: the depth is the features, the columns are channels.
template <class T, int D>
__global__ __launch_bounds__(block_threads,
                             D == 64 ? 2 : 1) void gradients_kernel(const __grid_constant__ FeatureCall call,
                                                                    const int padded, const int tasks) {
  constexpr int blocks = D / block_columns;
  const Weights<T> weights{reinterpret_cast<uint4*>(memory), padded / depth, blocks};
  const bool trigonometric = call.kind == FeatureKind::trigonometric;
  const float tiny = to_float(from_float<T>(0.001f));
  const auto set_weights = [&](int head) {
    const float* const from = call.projection + static_cast<std::int64_t>(head) * call.m * call.d;
    weights.set([&](int row, int channel) {
      return row < call.m && channel < call.d ? from[static_cast<std::int64_t>(row) * call.d + channel] : 0.0f;
    });
  };
  each_task(call, tasks, set_weights, [&](const RowPlace& place) {
    const T *const phi = place.rows_of<const T>(call.features), *const d = place.rows_of<const T>(call.dfeatures);
    const T* const x = place.rows_of<const T>(call.x);
    T* const dx = place.rows_of<T>(call.dx);
#pragma unroll 1
    for (int s = 0; s < strips; ++s) {
      float sum[blocks][4] = {}, along[2] = {};
      // The gradients of products of two features, and what they add along x.
      const auto pair_of = [&](std::uint32_t p, std::uint32_t g, std::uint32_t q, std::uint32_t h, float& dot) {
        const float2 a = unpack<T>(p), b = unpack<T>(g);
        dot += a.x * b.x + a.y * b.y;
        if (call.kind == FeatureKind::softmax) return pack<T>(call.scale * a.x * b.x, call.scale * a.y * b.y);
        if (call.kind == FeatureKind::relu)
          return pack<T>(a.x > tiny ? call.scale * b.x : 0.0f, a.y > tiny ? call.scale * b.y : 0.0f);
        const float2 sine = unpack<T>(q), of_sine = unpack<T>(h);
        dot += sine.x * of_sine.x + sine.y * of_sine.y;
        return pack<T>(call.scale * (of_sine.x * a.x - b.x * sine.x), call.scale * (of_sine.y * a.y - b.y * sine.y));
      };
      const auto word_of = [&](const uint4& p, const uint4& g, const uint4& q, const uint4& h, float& dot) {
        return make_uint4(pair_of(p.x, g.x, q.x, h.x, dot), pair_of(p.y, g.y, q.y, h.y, dot),
                          pair_of(p.z, g.z, q.z, h.z, dot), pair_of(p.w, g.w, q.w, h.w, dot));
      };
#pragma unroll 1
      for (int group = 0; group < weights.groups; ++group) {
        const int c = group * depth;
        const Words p = load_words(phi, call.features.row, s, c, call.m, place.count),
                    g = load_words(d, call.dfeatures.row, s, c, call.m, place.count);
        Words q = p, h = g;
        if (trigonometric) {
          q = load_words(phi + call.m, call.features.row, s, c, call.m, place.count);
          h = load_words(d + call.m, call.dfeatures.row, s, c, call.m, place.count);
        }
        const Words a{word_of(p.low, g.low, q.low, h.low, along[0]), word_of(p.high, g.high, q.high, h.high, along[1])};
#pragma unroll
        for (int b = 0; b < blocks; ++b) {
          multiply<T>(sum[b], a, weights.word(b, group, false));
          multiply<T>(sum[b], a, weights.word(b, group, true));
        }
      }
      const float sign = call.kind == FeatureKind::softmax ? -1.0f : call.kind == FeatureKind::relu ? 0.0f : 1.0f;
#pragma unroll
      for (float& e : along) {
        for (int step = 1; step < 4; step *= 2) e += __shfl_xor_sync(~0u, e, step);
        e *= sign * call.scale * call.scale;
      }
#pragma unroll
      for (int b = 0; b < blocks; b += 4)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int row = s * 16 + this_lane() / 4 + 8 * r, c = b * block_columns;
          const bool there = row < place.count;
          std::uint32_t v[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int at = c + i * block_columns + this_lane() % 4 * 2;
            float2 own{0, 0};
            if (there && at < call.d)
              own = unpack<T>(*reinterpret_cast<const std::uint32_t*>(x + row * call.x.row + at));
            v[i] = pack<T>(sum[b + i][2 * r] + along[r] * own.x, sum[b + i][2 * r + 1] + along[r] * own.y);
          }
          transpose_quad(v);
          const int to = c + this_lane() % 4 * 8;
          if (there && to < call.d)
            *reinterpret_cast<uint4*>(dx + row * call.dx.row + to) = make_uint4(v[0], v[1], v[2], v[3]);
        }
    }
  });
}

int padded_to(int x, int multiple) { return (x + multiple - 1) / multiple * multiple; }

}  // namespace
}  // namespace fragments

bool takes_fragments(const FeatureCall& call) {
  const int padded = fragments::padded_to(call.m, fragments::depth), d = call.d <= 64 ? 64 : 128;
  return call.aligned && call.d <= 128 && call.m % 8 == 0 &&
         fragments::bytes_of_weights(padded, d) <= std::size_t{200} * 1024;
}

namespace {

template <class F>
void with_depth(const FeatureCall& call, F&& f) {
  if (call.d <= 64)
    f(std::integral_constant<int, 64>{});
  else
    f(std::integral_constant<int, 128>{});
}

}  // namespace

template <class T>
void features_by_fragments(const FeatureCall& call, FeatureStage stage, const Launch& launch) {
  using fragments::Stabiliser;
  const int padded = fragments::padded_to(call.m, fragments::depth);
  with_depth(call, [&](auto d) {
    constexpr int D = decltype(d)::value;
    const std::size_t bytes = fragments::bytes_of_weights(padded, D);
    const int tasks = fragments::tasks_of_unit(call);
    const Grid grid{static_cast<unsigned>(fragments::blocks_of(call, bytes)), fragments::block_threads, bytes};
    if (stage == FeatureStage::gradients) {
      allow_shared(fragments::gradients_kernel<T, D>, bytes);
      return run("features backward", fragments::gradients_kernel<T, D>, grid, launch, call, padded, tasks);
    }
    const Stabiliser stabiliser = stage == FeatureStage::maxima       ? Stabiliser::exponents
                                  : stage == FeatureStage::own_maxima ? Stabiliser::rows
                                                                      : Stabiliser::given;
    const auto start = [&](auto kernel) {
      allow_shared(kernel, bytes);
      run("features", kernel, grid, launch, call, stabiliser, padded, tasks);
    };
    call.kind == FeatureKind::trigonometric ? start(fragments::features_kernel<T, D, true>)
                                            : start(fragments::features_kernel<T, D, false>);
  });
}

template void features_by_fragments<__nv_bfloat16>(const FeatureCall&, FeatureStage, const Launch&);
template void features_by_fragments<__half>(const FeatureCall&, FeatureStage, const Launch&);

}  // namespace longstride::kernels::cuda::scanning
