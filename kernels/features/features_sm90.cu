// Features of bf16 rows for Hopper, and their gradients: projections of 129 to 256 rows of up to 64 channels, as the
// Performer has, but of sines. A block keeps the projection in shared memory, as a sum of two rounded ones, and
// warpgroups take tiles of 64 rows, which TMA brings and takes away. A tile's products are computed once: all 256 are
// in registers, where their largest is found.
#include <algorithm>

#include "kernels/base/approximate.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_types.cuh"
#include "kernels/features/feature_call.cuh"
#include "kernels/gpu/barrier.cuh"
#include "kernels/gpu/tensor_map.h"
#include "kernels/gpu/tma.cuh"
#include "kernels/gpu/wgmma.cuh"

namespace longstride::kernels::cuda::scanning {

extern __shared__ char memory[];

namespace wide {
namespace {

using T = __nv_bfloat16;
constexpr int tile = 64, halves = 2, columns_of_half = 128, most_features = halves * columns_of_half;
constexpr std::size_t tile_bytes = tile * tile * sizeof(T), row_of_tile = tile * sizeof(T),
                      weights_bytes = most_features * row_of_tile;
constexpr int multiprocessors_of_h200 = 132;

// Tiles of 64 x 64 of rows of a head.
CUtensorMap map_of(const HeadMatrix& x, const FeatureCall& call, std::int64_t size) {
  return tensor_map(x.data, DtypeOf<T>::value,
                    {.size = {size, call.heads, call.n, 1, call.units / call.heads},
                     .stride = {x.head, x.row, x.row * call.n, x.batch},
                     .columns = tile,
                     .box = {1, tile, 1, 1}});
}
struct FeatureMaps {
  CUtensorMap x, features, dfeatures, dx;
};

// Where a warpgroup is: 64 positions from `first` on, or none.
struct TilePlace {
  int unit, head, sequence, first;

  __device__ TilePlace(const FeatureCall& call, int task, int tasks_of_unit, int rows_of_task, int group)
      : unit(task / tasks_of_unit),
        head(unit % call.heads),
        sequence(unit / call.heads),
        first(task % tasks_of_unit * rows_of_task + group * tile) {}
  __device__ Coordinates at(int column) const { return {{column, head, first, 0, sequence}}; }
};

// The byte of a row's pack of eight columns in a tile with TMA's swizzle.
__device__ inline char* pack_at(char* tile_of_row, int row, int word) {
  return tile_of_row + row * static_cast<int>(row_of_tile) + (word ^ row % 8) * 16;
}

// A warpgroup's walk over its tiles. Warpgroups: of a block.
template <int Warpgroups>
struct Walk {
  static constexpr int threads = Warpgroups * warpgroup_threads, rows_of_task = Warpgroups * tile;
  const FeatureCall& call;
  const int tasks, group = uniform(this_warpgroup()), thread = this_thread() % warpgroup_threads,
                   warp = thread / warp_threads, lane = this_lane(), low = warp * 16 + lane / 4;
  char* const shared = memory + uniform(static_cast<int>(bytes_to_tile(memory)));

  __device__ TilePlace place(int task) const { return {call, task, tasks, rows_of_task, group}; }
  __device__ void sync() const { named_barrier_sync(1 + group, warpgroup_threads); }
  // Rows of the projection, rounded, and what rounding has left, behind each other.
  __device__ void set_weights(int head) const {
    const float* const from = call.projection + static_cast<std::int64_t>(head) * call.m * call.d;
#pragma unroll 8
    for (int i = this_thread(); i < most_features * tile / 2; i += threads) {
      const int row = i / (tile / 2), c = i % (tile / 2) * 2;
      float2 w{0, 0};
      if (row < call.m && c < call.d)
        w = *reinterpret_cast<const float2*>(from + static_cast<std::int64_t>(row) * call.d + c);
      const std::uint32_t high = pack<T>(w.x, w.y);
      const float2 rounded = unpack<T>(high);
      char* const to = pack_at(shared, row, c / 8) + c % 8 * 2;
      *reinterpret_cast<std::uint32_t*>(to) = high;
      *reinterpret_cast<std::uint32_t*>(to + weights_bytes) = pack<T>(w.x - rounded.x, w.y - rounded.y);
    }
    proxy_fence();
  }
  // f(task) for the block's share, in order; the weights are those of the task's head.
  template <class F>
  __device__ void each_task(F&& f) const {
    const std::int64_t all = static_cast<std::int64_t>(call.units) * tasks, blocks = gridDim.x;
    const auto begin = static_cast<int>(all * blockIdx.x / blocks),
               end = static_cast<int>(all * (blockIdx.x + 1) / blocks);
    int there = -1;
#pragma unroll 1
    for (int task = begin; task < end; ++task) {
      if (const int head = place(task).head % call.projections; head != there) {
        __syncthreads();
        set_weights(head);
        __syncthreads();
        there = head;
      }
      f(task, task + 1 < end, task == begin);
    }
  }
  // c of the thread's two rows.
  __device__ float* c_of(const TilePlace& at, int row) const {
    return call.c + static_cast<std::int64_t>(at.unit) * call.n + at.first + row;
  }
};

constexpr int feature_groups = 3;
struct FeatureRoom {
  static constexpr std::size_t x = 2 * weights_bytes, of_group = (2 + most_features / tile) * tile_bytes,
                               full = x + feature_groups * of_group, bytes = full + 2 * feature_groups * 8;
};

// exponents: c is written. rows: c is each row's largest exponent. given: c is read.
enum class Stabiliser : std::uint8_t { exponents, rows, given };

struct Features : Walk<feature_groups> {
  const FeatureMaps& maps;
  const Stabiliser stabiliser;
  char* const own = shared + FeatureRoom::x + group * FeatureRoom::of_group;
  char* const out = own + 2 * tile_bytes;
  std::uint64_t* const full = reinterpret_cast<std::uint64_t*>(shared + FeatureRoom::full) + 2 * group;

  __device__ Features(const FeatureCall& of_call, const FeatureMaps& of_maps, Stabiliser how, int of_unit)
      : Walk<feature_groups>{of_call, of_unit}, maps(of_maps), stabiliser(how) {}

  __device__ void load(int task, int stage) const {
    if (thread != 0) return;
    barrier_arrive_expect(&full[stage], tile_bytes);
    tma_load(own + stage * tile_bytes, &maps.x, place(task).at(0), &full[stage]);
  }
  // |x'|^2 / 2 of the thread's rows.
  __device__ void set_halves(float (&half)[2], char* x) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        const uint4 word = *reinterpret_cast<const uint4*>(pack_at(x, low + 8 * r, lane % 4 * 2 + w));
        for (const std::uint32_t pair : {word.x, word.y, word.z, word.w}) {
          const float2 e = unpack<T>(pair);
          sum += e.x * e.x + e.y * e.y;
        }
      }
      for (int step = 1; step < 4; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
      half[r] = 0.5f * call.scale * call.scale * sum;
    }
  }
  __device__ void start_products(float (&d)[halves][columns_of_half / 2], const char* x) const {
    const std::uint64_t a = descriptor<row_of_tile>(x);
    wgmma_fence();
#pragma unroll
    for (int h = 0; h < halves; ++h) {
      const char* const rows_of_half = shared + h * columns_of_half * row_of_tile;
#pragma unroll
      for (int low_part = 0; low_part < 2; ++low_part) {
        const std::uint64_t b = descriptor<row_of_tile>(rows_of_half + low_part * weights_bytes);
#pragma unroll
        for (int i = 0; i < tile / 16; ++i)
          wgmma<T, columns_of_half, false>(d[h], advanced(a, i * 32), advanced(b, i * 32), low_part + i > 0);
      }
    }
    wgmma_commit();
  }
  // The largest exponent of the thread's rows.
  __device__ void set_top(float (&top)[2], const float (&d)[halves][columns_of_half / 2],
                          const float (&half)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = -INFINITY;
#pragma unroll
      for (int h = 0; h < halves; ++h)
#pragma unroll
        for (int j = 0; j < columns_of_half / 8; ++j)
          // The last features may be none: m is a multiple of 8.
          if (h * columns_of_half + j * 8 < call.m)
            most = fmaxf(most, fmaxf(d[h][element_at(j, r, 0)], d[h][element_at(j, r, 1)]));
      for (int step = 1; step < 4; step *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
      top[r] = most * call.scale - half[r];
    }
  }
  template <class F>
  __device__ void put(const float (&d)[halves][columns_of_half / 2], F&& of) const {
#pragma unroll
    for (int h = 0; h < halves; ++h)
#pragma unroll
      for (int k = 0; k < columns_of_half / 16; ++k) {
        const int column = h * columns_of_half + k * 16;
        std::uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          words[i] = pack<T>(of(d[h][8 * k + 2 * i], i % 2), of(d[h][8 * k + 2 * i + 1], i % 2));
        char* const to = out + column / tile * tile_bytes;
        store_matrices(pack_at(to, warp * 16 + lane % 16, column % tile / 8 + lane / 16), words[0], words[1], words[2],
                       words[3]);
      }
  }
  __device__ void write(const TilePlace& at, const float (&d)[halves][columns_of_half / 2], const float (&half)[2],
                        const float (&top)[2]) const {
    if (thread == 0) store_wait<0>();
    sync();
    if (call.kind == FeatureKind::softmax) {
      const float rate = call.scale * log2_e, off[2] = {(half[0] + top[0]) * log2_e, (half[1] + top[1]) * log2_e};
      put(d, [&](float e, int r) { return exp2_approx(e * rate - off[r]); });
    } else {
      put(d, [&](float e, int) { return fmaxf(e * call.scale, 0.0f) + 0.001f; });
    }
    proxy_fence();
    sync();
    if (thread != 0) return;
    for (int t = 0; t * tile < call.m; ++t) tma_store(&maps.features, at.at(t * tile), out + t * tile_bytes);
    store_commit();
  }
  __device__ void walk() const {
    int stage = 0;
    std::uint32_t parity = 0;
    each_task([&](int task, bool more, bool is_first) {
      if (is_first) load(task, 0);
      const TilePlace at = place(task);
      char* const x = own + stage * tile_bytes;
      barrier_wait(&full[stage], parity);
      float d[halves][columns_of_half / 2], half[2], top[2] = {};
      start_products(d, x);
      set_halves(half, x);
      if (stabiliser == Stabiliser::given && call.kind == FeatureKind::softmax)
#pragma unroll
        for (int r = 0; r < 2; ++r) top[r] = at.first + low + 8 * r < call.n ? *c_of(at, low + 8 * r) : 0.0f;
      proxy_fence();
      sync();  // the other place has been read
      if (more) load(task + 1, stage ^ 1);
      parity ^= static_cast<std::uint32_t>(stage);
      stage ^= 1;
      wgmma_wait<0>();
      wgmma_hold(d[0]);
      wgmma_hold(d[1]);
      if (stabiliser != Stabiliser::given) set_top(top, d, half);
      if (stabiliser == Stabiliser::exponents) {
#pragma unroll
        for (int r = 0; r < 2; ++r)
          if (lane % 4 == 0 && at.first + low + 8 * r < call.n) *c_of(at, low + 8 * r) = top[r];
      } else {
        write(at, d, half, top);
      }
    });
    if (thread == 0) store_wait<0>();
  }
};

__global__ __launch_bounds__(Features::threads, 1) void features_kernel(const __grid_constant__ FeatureCall call,
                                                                        const __grid_constant__ FeatureMaps maps,
                                                                        const Stabiliser stabiliser, const int tasks) {
  const Features features(call, maps, stabiliser, tasks);
  if (features.thread == 0) {
    barrier_init(&features.full[0], 1);
    barrier_init(&features.full[1], 1);
    barrier_init_fence();
  }
  __syncthreads();
  features.walk();
}

constexpr int gradient_groups = 2;
struct GradientRoom {
  static constexpr std::size_t tiles_of_row = most_features / tile, dfeatures = tiles_of_row * tile_bytes,
                               x = 2 * dfeatures, dx = x + tile_bytes, of_group = dx + tile_bytes,
                               full = 2 * weights_bytes + gradient_groups * of_group,
                               bytes = full + gradient_groups * sizeof(std::uint64_t);
  static_assert(bytes + tile_alignment <= 227 * 1024);
};

// dx = g W + x times a number of the row: g, the gradients of products, are operands in registers.
struct Gradients : Walk<gradient_groups> {
  using Room = GradientRoom;
  static constexpr int quarter = 4;  // steps of 16 features
  const FeatureMaps& maps;
  char* const own = shared + 2 * weights_bytes + group * Room::of_group;
  std::uint64_t* const full = reinterpret_cast<std::uint64_t*>(shared + Room::full) + group;

  __device__ Gradients(const FeatureCall& of_call, const FeatureMaps& of_maps, int of_unit)
      : Walk<gradient_groups>{of_call, of_unit}, maps(of_maps) {}

  __device__ void load(int task) const {
    if (thread != 0) return;
    const TilePlace at = place(task);
    barrier_arrive_expect(full, Room::dx);
    for (int t = 0; t < static_cast<int>(Room::tiles_of_row); ++t) {
      tma_load(own + t * tile_bytes, &maps.features, at.at(t * tile), full);
      tma_load(own + Room::dfeatures + t * tile_bytes, &maps.dfeatures, at.at(t * tile), full);
    }
    tma_load(own + Room::x, &maps.x, at.at(0), full);
  }
  // Gradients of the products of 64 features, and what they add along x.
  __device__ void set_operands(std::uint32_t (&g)[quarter][4], float (&along)[2], int t) const {
    const float tiny = to_float(from_float<T>(0.001f));
#pragma unroll
    for (int i = 0; i < quarter; ++i) {
      const char* const at = pack_at(own + t * tile_bytes, warp * 16 + lane % 16, 2 * i + lane / 16);
      std::uint32_t phi[4], d[4];
      load_matrices(phi, at);
      load_matrices(d, at + Room::dfeatures);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float2 a = unpack<T>(phi[e]), b = unpack<T>(d[e]);
        along[e % 2] += a.x * b.x + a.y * b.y;
        g[i][e] = call.kind == FeatureKind::softmax
                      ? pack<T>(call.scale * a.x * b.x, call.scale * a.y * b.y)
                      : pack<T>(a.x > tiny ? call.scale * b.x : 0.0f, a.y > tiny ? call.scale * b.y : 0.0f);
      }
    }
  }
  __device__ void start_product(float (&sum)[tile / 2], const std::uint32_t (&g)[quarter][4], int t) const {
    const std::uint64_t high = descriptor<row_of_tile>(shared + t * tile * row_of_tile),
                        low_part = descriptor<row_of_tile>(shared + t * tile * row_of_tile + weights_bytes);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < quarter; ++i) {
      wgmma<T, tile, true>(sum, g[i], advanced(high, i * 16 * row_of_tile), t + i > 0);
      wgmma<T, tile, true>(sum, g[i], advanced(low_part, i * 16 * row_of_tile), true);
    }
    wgmma_commit();
  }
  // dx, where the tile of dx has been stored.
  __device__ void put(const float (&sum)[tile / 2], const std::uint32_t (&x)[quarter][4], float (&along)[2]) const {
    const float sign = call.kind == FeatureKind::softmax ? -1.0f : 0.0f;
    for (float& e : along) {
      for (int step = 1; step < 4; step *= 2) e += __shfl_xor_sync(~0u, e, step);
      e *= sign * call.scale * call.scale;
    }
#pragma unroll
    for (int i = 0; i < quarter; ++i) {
      std::uint32_t words[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float2 of_x = unpack<T>(x[i][e]);
        words[e] = pack<T>(sum[8 * i + 2 * e] + along[e % 2] * of_x.x, sum[8 * i + 2 * e + 1] + along[e % 2] * of_x.y);
      }
      store_matrices(pack_at(own + Room::dx, warp * 16 + lane % 16, 2 * i + lane / 16), words[0], words[1], words[2],
                     words[3]);
    }
  }
  __device__ void walk() const {
    std::uint32_t parity = 0;
    each_task([&](int task, bool more, bool is_first) {
      if (is_first) load(task);
      barrier_wait(full, parity);
      parity ^= 1;
      float sum[tile / 2], along[2] = {};
      std::uint32_t g[2][quarter][4], x[quarter][4];
#pragma unroll
      for (int t = 0; t < static_cast<int>(Room::tiles_of_row); ++t) {
        if (t >= 2) wgmma_wait<1>();  // that of t - 2 has read its operand
        set_operands(g[t % 2], along, t);
        start_product(sum, g[t % 2], t);
      }
#pragma unroll
      for (int i = 0; i < quarter; ++i)
        load_matrices(x[i], pack_at(own + Room::x, warp * 16 + lane % 16, 2 * i + lane / 16));
      if (thread == 0) store_wait<0>();
      proxy_fence();  // TMA fills what has been read
      sync();
      if (more) load(task + 1);
      wgmma_wait<0>();
      wgmma_hold(sum);
      put(sum, x, along);
      proxy_fence();
      sync();
      if (thread != 0) return;
      tma_store(&maps.dx, place(task).at(0), own + Room::dx);
      store_commit();
    });
    if (thread == 0) store_wait<0>();
  }
};

__global__ __launch_bounds__(Gradients::threads, 1) void gradients_kernel(const __grid_constant__ FeatureCall call,
                                                                          const __grid_constant__ FeatureMaps maps,
                                                                          const int tasks) {
  const Gradients gradients(call, maps, tasks);
  if (gradients.thread == 0) {
    barrier_init(gradients.full, 1);
    barrier_init_fence();
  }
  __syncthreads();
  gradients.walk();
}

}  // namespace
}  // namespace wide

bool takes_wide_features(const FeatureCall& call) {
  const auto has_strides = [](const HeadMatrix& x) { return x.data == nullptr || x.has_strides(); };
  return call.aligned && call.d <= 64 && call.m > 128 && call.m <= 256 && call.m % 8 == 0 &&
         call.kind != FeatureKind::trigonometric && has_strides(call.x) && has_strides(call.features) &&
         has_strides(call.dfeatures) && has_strides(call.dx);
}

void wide_features(const FeatureCall& call, FeatureStage stage, const Launch& launch) {
  using namespace wide;
  const bool backward = stage == FeatureStage::gradients;
  const CUtensorMap x = map_of(call.x, call, call.d), features = map_of(call.features, call, call.m);
  const FeatureMaps maps = {x, features, backward ? map_of(call.dfeatures, call, call.m) : features,
                            backward ? map_of(call.dx, call, call.d) : x};
  const auto start = [&](const char* name, auto kernel, int rows_of_task, int threads, std::size_t bytes,
                         auto... more) {
    const int tasks = (call.n + rows_of_task - 1) / rows_of_task;
    bytes += tile_alignment;
    allow_shared(kernel, bytes);
    run(name, kernel,
        {static_cast<unsigned>(std::min(call.units * tasks, multiprocessors_of_h200)), static_cast<unsigned>(threads),
         bytes},
        launch, call, maps, more..., tasks);
  };
  if (backward)
    return start("wide features backward", gradients_kernel, Gradients::rows_of_task, Gradients::threads,
                 GradientRoom::bytes);
  const Stabiliser stabiliser = stage == FeatureStage::maxima       ? Stabiliser::exponents
                                : stage == FeatureStage::own_maxima ? Stabiliser::rows
                                                                    : Stabiliser::given;
  start("wide features", features_kernel, Features::rows_of_task, Features::threads, FeatureRoom::bytes, stabiliser);
}

}  // namespace longstride::kernels::cuda::scanning
