// Features: the largest exponents of every row; of keys their running maximum; and the features relative to it, from
// the same products computed again.
#include <cmath>
#include <limits>

#include "kernels/features/feature_rows.cuh"

namespace longstride::kernels::cuda {
namespace {

using namespace scanning;

template <class T>
struct FeatureRows {
  const FeatureCall& call;
  const Place place;
  const Weights<T> weights;
  const Keys<T> x{reinterpret_cast<T*>(memory + FeatureMemory<T>::rows_tile)};
  float* const half = reinterpret_cast<float*>(memory + FeatureMemory<T>::numbers);  // |x'|^2 / 2
  float* const top = half + rows;                                                    // the largest exponent, or c
  const int row = this_warp() * 16;

  __device__ explicit FeatureRows(const FeatureCall& of_call)
      : call(of_call), place(of_call, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x)), weights() {}

  __device__ std::int64_t number(int of_row) const {
    return static_cast<std::int64_t>(place.unit) * call.n + place.first + of_row;
  }
  __device__ void set_halves() {
    const T* from = place.rows_of<const T>(call.x);
    for (int r = this_warp(); r < rows; r += warps) {
      float sum = 0;
      for (int j = this_lane(); j < call.d && r < place.count; j += warp_threads) {
        const float e = to_float(from[r * call.x.row + j]);
        sum += e * e;
      }
      for (int step = 1; step < warp_threads; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
      if (this_lane() == 0) half[r] = 0.5f * call.scale * call.scale * sum;
    }
    __syncthreads();
  }
  // w_i . x' for rows [first, +64) of the projection.
  __device__ void project(Strip<4>& sum, int first) {
    sum.clear();
    for (int c = 0; c < call.d; c += slice<T>) {
      const Columns columns = channels_of(call, c, slice<T>);
      __syncthreads();
      if (first == 0 || call.d > slice<T>) load_rows<T>(x, call.x, place, columns, call.d, call.aligned, nullptr);
      weights.load(call, place, first, columns);
      __syncthreads();
      weights.add(sum, x, columns.padded);
    }
    sum.each([&](int, int, float& e) { e *= call.scale; });
  }
  __device__ void write_maxima() {
    set_halves();
    float most[2] = {-INFINITY, -INFINITY};
    for (int first = 0; first < call.m && call.kind == FeatureKind::softmax; first += weight_rows) {
      Strip<4> sum;
      project(sum, first);
      sum.each([&](int r, int c, const float& e) {
        if (first + c < call.m) most[r / 8] = fmaxf(most[r / 8], e);
      });
    }
    for (int r = 0; r < 2; ++r) {
      for (int step = 1; step < 4; step *= 2) most[r] = fmaxf(most[r], __shfl_xor_sync(~0u, most[r], step));
      const int at = row + this_lane() / 4 + 8 * r;
      if (this_lane() % 4 == 0 && at < place.count)
        call.c[number(at)] = call.kind == FeatureKind::softmax ? most[r] - half[at] : half[at];
    }
  }
  __device__ void write_features() {
    set_halves();
    if (this_thread() < rows && call.kind != FeatureKind::relu)
      top[this_thread()] = this_thread() < place.count ? call.c[number(this_thread())] : 0.0f;
    for (int first = 0; first < call.m; first += weight_rows) {
      Strip<4> sum;
      project(sum, first);
      const int count = min(weight_rows, call.m - first);
      const auto store = [&](Strip<4>& values, int behind) {
        store_strip<T>(values, call.features, place, Columns(behind + first, count), behind + call.m,
                       call.aligned && call.m % 2 == 0);
      };
      if (call.kind == FeatureKind::trigonometric) {
        Strip<4> sines = sum;
        sines.each([&](int r, int, float& e) { e = sinf(e) * expf(half[row + r] - top[row + r]); });
        store(sines, call.m);
      }
      sum.each([&](int r, int, float& e) {
        if (call.kind == FeatureKind::softmax) e = expf(e - half[row + r] - top[row + r]);
        if (call.kind == FeatureKind::relu) e = fmaxf(e, 0.0f) + 0.001f;
        if (call.kind == FeatureKind::trigonometric) e = cosf(e) * expf(half[row + r] - top[row + r]);
      });
      store(sum, 0);
    }
  }
};

template <class T>
__global__ __launch_bounds__(threads) void maxima_kernel(const FeatureCall call) {
  FeatureRows<T>(call).write_maxima();
}
template <class T>
__global__ __launch_bounds__(threads) void features_kernel(const FeatureCall call) {
  FeatureRows<T>(call).write_features();
}

// The running maximum of a segment by a block, four neighbouring positions a thread; a group's first position starts
// anew. backwards: from the last position, so that maxima of what came before become those of the group.
constexpr int running_threads = 1024, running_warps = running_threads / warp_threads, neighbours = 4;
static_assert(running_threads * neighbours == running_segment);

// A maximum of some positions, and whether what came before them is forgotten.
struct Running {
  float most;
  bool clear;

  __device__ Running behind(const Running& before) const {
    return clear ? *this : Running{fmaxf(most, before.most), before.clear};
  }
};

// alone: only what the segment adds to those behind it.
__global__ __launch_bounds__(running_threads) void running_kernel(const FeatureCall call, const bool backwards,
                                                                  const bool alone) {
  __shared__ float last[running_warps];
  __shared__ int cleared[running_warps];
  const int segment = static_cast<int>(blockIdx.x), unit = static_cast<int>(blockIdx.y), lane = this_lane();
  float* const c = call.c + static_cast<std::int64_t>(unit) * call.n;
  float* const segments = call.segments + static_cast<std::int64_t>(unit) * 2 * gridDim.x;
  const std::int32_t* const begin =
      call.begin != nullptr ? call.begin + static_cast<std::int64_t>(unit / call.heads) * call.n : nullptr;
  const int from = (segment * running_threads + this_thread()) * neighbours;
  Running own[neighbours], all{-INFINITY, false};
#pragma unroll
  for (int i = 0; i < neighbours; ++i) {
    const int number = from + i, t = backwards ? call.n - 1 - number : number;
    const bool there = number < call.n;
    const int border = backwards ? t + 1 : t;  // the group's begin that would lie between t and what came before
    own[i] = {there ? c[t] : -INFINITY,
              there && begin != nullptr && border > 0 && border < call.n && begin[border] == border};
    all = own[i].behind(all);
  }
  Running sum = all;
  for (int step = 1; step < warp_threads; step *= 2) {
    const int other = max(lane - step, 0);
    const float most = __shfl_sync(~0u, sum.most, other);
    const bool clear = __shfl_sync(~0u, sum.clear, other);
    if (lane >= step) sum = sum.behind({most, clear});
  }
  if (lane == warp_threads - 1) {
    last[this_warp()] = sum.most;
    cleared[this_warp()] = sum.clear ? 1 : 0;
  }
  __syncthreads();
  // The maximum before the segment, and what some warps have left behind of it.
  const auto behind = [&](Running before, int of_warps) {
    for (int w = 0; w < of_warps; ++w) before = Running{last[w], cleared[w] != 0}.behind(before);
    return before;
  };
  if (alone) {
    if (this_thread() > 0) return;
    const Running left = behind({-INFINITY, false}, running_warps);
    segments[2 * segment] = left.most;
    segments[2 * segment + 1] = left.clear ? 1.0f : 0.0f;
    return;
  }
  Running carried{!backwards && call.first_c != nullptr ? call.first_c[unit] : -INFINITY, false};
  if (call.states && carried.most == 0) carried.most = -INFINITY;
  for (int i = 0; i < segment; ++i) carried = Running{segments[2 * i], segments[2 * i + 1] != 0}.behind(carried);
  const float incoming = behind(carried, this_warp()).most, most = __shfl_sync(~0u, sum.most, max(lane - 1, 0));
  const bool clear = __shfl_sync(~0u, sum.clear, max(lane - 1, 0));
  float before = lane == 0 ? incoming : clear ? most : fmaxf(most, incoming);
#pragma unroll
  for (int i = 0; i < neighbours; ++i) {
    const int number = from + i, t = backwards ? call.n - 1 - number : number;
    if (number >= call.n) continue;
    if (own[i].clear) before = -INFINITY;
    const float now = fmaxf(own[i].most, before);
    c[t] = now;
    if (call.decay != nullptr)
      call.decay[(static_cast<std::int64_t>(unit / call.heads) * call.n + t) * call.heads + unit % call.heads] =
          before > -INFINITY ? before - now : 0.0f;
    before = now;
  }
  if (backwards || call.last_c == nullptr || segment + 1 < static_cast<int>(gridDim.x) || this_thread() > 0) return;
  const float left = behind(carried, running_warps).most;
  call.last_c[unit] = call.states && left == 0 ? std::numeric_limits<float>::min() : left;
}

void run_maxima(const FeatureCall& call, bool both, const Launch& launch) {
  const dim3 blocks(static_cast<unsigned>(running_segments(call.n)), static_cast<unsigned>(call.units));
  for (const bool backwards : {false, true}) {
    if (backwards && !both) continue;
    if (blocks.x > 1)
      run("features maxima of segments", running_kernel, {blocks, running_threads}, launch, call, backwards, true);
    run("features running maxima", running_kernel, {blocks, running_threads}, launch, call, backwards, false);
  }
}

}  // namespace

void features(const FeaturesArgs& args, const Launch& launch) {
  FeatureCall call(args);
  call.c = args.scratch.as<float>();
  call.segments = call.c + args.x.size(0) * args.x.size(1) * args.x.size(2);
  call.decay = args.decay.as<float>();
  call.begin = args.begin.as<const std::int32_t>();
  call.first_c = args.first_c.as<const float>();
  call.last_c = args.last_c.as<float>();
  call.states = args.states;
  call.aligned = rows_on_16_bytes(args.x) && rows_on_16_bytes(args.features);
  const bool stabilised = args.kind != FeatureKind::relu, both = args.direction == Direction::both;
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) == 2)
      if (takes_fragments(call)) {
        if (!args.keys) return features_by_tiles<T>(call, FeatureStage::own_maxima, launch);
        if (stabilised) {
          features_by_tiles<T>(call, FeatureStage::maxima, launch);
          run_maxima(call, both, launch);
        }
        return features_by_tiles<T>(call, stabilised ? FeatureStage::features : FeatureStage::own_maxima, launch);
      }
    constexpr std::size_t bytes = FeatureMemory<T>::other;
    allow_shared(maxima_kernel<T>, bytes);
    allow_shared(features_kernel<T>, bytes);
    const Grid grid{call.grid(), threads, bytes};
    if (stabilised) {
      run("features maxima", maxima_kernel<T>, grid, launch, call);
      if (args.keys) run_maxima(call, both, launch);
    }
    run("features", features_kernel<T>, grid, launch, call);
  });
}

}  // namespace longstride::kernels::cuda
