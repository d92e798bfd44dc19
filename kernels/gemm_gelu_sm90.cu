// The products around the activation of a feed-forward branch: many rows, few columns, little depth. A block stays on
// one panel of 128 columns: all of b's panel is in shared memory, and tiles of 128 rows of a stream past it. Two
// warpgroups take them in turns, so that one multiplies while the other computes the activation of its tile. Blocks of
// all panels go down the rows together, so that a is read from memory once and from the second-level cache otherwise.
#include <algorithm>

#include "kernels/attention/sm90/ptx.cuh"
#include "kernels/attention/sm90/tensor_map.h"
#include "kernels/attention/sm90/wgmma.cuh"
#include "kernels/base/activation.cuh"
#include "kernels/base/add_partials.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/row_chunks.h"
#include "kernels/gemm_gelu_sm90.h"

namespace longstride::kernels::cuda::sm90 {
namespace {

constexpr int tile = 128;  // rows and columns of a warpgroup's tile
constexpr int half = 64;   // of both: a box of TMA, 128 bytes wide
constexpr int warpgroups = 2, threads = 128 * (warpgroups + 1);
constexpr int box_bytes = half * half * 2, a_bytes = 2 * box_bytes;  // of a stage: 128 rows, 64 deep

struct Problem {
  CUtensorMap a, b, c, activated;  // boxes of a: 128 x 64; of the others: 64 x 64
  std::int32_t tiles, steps;       // of rows; of 64 in depth
  std::int32_t panels, groups;     // blocks: panels x groups, and group g takes the tiles g, g + groups, ...
  std::int64_t columns;
  bool keeps_c;      // forward: written unless activated takes its place
  const void* bias;  // forward
  float* partials;   // backward: (warpgroups * groups, columns), or null
};

// The ring of a's stages, and the boxes in which results, and backward the activation's input, are staged.
template <bool backward, int most_steps>
struct Layout {
  static constexpr int stages = backward && most_steps > 4 ? 3 : 4;
  static constexpr int boxes = most_steps <= 4 ? 4 : backward ? 3 : 2;  // of a warpgroup
  static constexpr int a_at = most_steps * a_bytes, boxes_at = a_at + stages * a_bytes,
                       control_at = boxes_at + warpgroups * boxes * box_bytes;
  static constexpr std::size_t shared_bytes = control_at + 8 * (1 + 2 * stages + warpgroups * boxes) + 1024;
};

template <class T, bool backward, int most_steps>
struct Kernel {
  using L = Layout<backward, most_steps>;
  struct Control {
    std::uint64_t b, full[L::stages], empty[L::stages], input[warpgroups][L::boxes];
  };

  __device__ static void produce(const Problem& p, char* shared, Control& control, int panel, int group) {
    barrier_arrive_expect(&control.b, static_cast<std::uint32_t>(p.steps) * a_bytes);
    for (int k = 0; k < p.steps; ++k)
      for (int i = 0; i < 2; ++i) {
        // K-major: step by step, 128 rows of 64. MN-major: 64 columns all the way down, then the other 64.
        char* const to = shared + (backward ? i * p.steps + k : 2 * k + i) * box_bytes;
        const std::int32_t column = panel * tile + i * half, depth = k * half;
        tma_load(to, &p.b, {{backward ? column : depth, 0, backward ? depth : column, 0, 0}}, &control.b);
      }
    int stage = 0;
    std::uint32_t parity = 1;
    for (std::int32_t t = group; t < p.tiles; t += p.groups)
      for (int k = 0; k < p.steps; ++k) {
        barrier_wait(&control.empty[stage], parity);
        barrier_arrive_expect(&control.full[stage], a_bytes);
        tma_load(shared + L::a_at + stage * a_bytes, &p.a, {{k * half, 0, t * tile, 0, 0}}, &control.full[stage]);
        if (++stage == L::stages) {
          stage = 0;
          parity ^= 1;
        }
      }
  }

  // Both halves of the tile's rows, as `turn` tiles of this block have gone before it. The warpgroups come in turns, or
  // the second would take a stage's fill of two rounds ago for its own.
  __device__ static void multiply(const Problem& p, const char* shared, Control& control, int turn,
                                  float (&d)[2][half]) {
    const int before = turn * p.steps;
    int stage = before % L::stages;
    std::uint32_t parity = static_cast<std::uint32_t>(before / L::stages) & 1;
    int last = 0;
    const int warpgroup = threadIdx.x / 128;
    named_barrier_sync(3 + warpgroup, 256);
    const std::uint64_t b =
        backward ? descriptor<128>(shared, static_cast<std::uint32_t>(p.steps) * box_bytes) : descriptor<128>(shared);
    for (int k = 0; k < p.steps; ++k) {
      const char* const a = shared + L::a_at + stage * a_bytes;
      barrier_wait(&control.full[stage], parity);
      wgmma_hold(d[0]);
      wgmma_hold(d[1]);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        const std::uint64_t here = backward ? advanced(b, static_cast<std::uint32_t>(k * box_bytes + step * 16 * 128))
                                            : advanced(b, static_cast<std::uint32_t>(k * a_bytes + step * 32));
#pragma unroll
        for (int h = 0; h < 2; ++h)
          wgmma<T, tile, backward>(d[h],
                                   advanced(descriptor<128>(a), static_cast<std::uint32_t>(h * box_bytes + step * 32)),
                                   here, k > 0 || step > 0);
      }
      wgmma_commit();
      if (k > 0) {
        wgmma_wait<1>();
        release(control, last);
      }
      last = stage;
      if (++stage == L::stages) {
        stage = 0;
        parity ^= 1;
      }
    }
    named_barrier_arrive(3 + (warpgroup + 1) % warpgroups, 256);
    wgmma_wait<0>();
    wgmma_hold(d[0]);
    wgmma_hold(d[1]);
    release(control, last);
  }
  __device__ static void release(Control& control, int stage) {
    if (threadIdx.x % 32 == 0) barrier_arrive(&control.empty[stage]);  // this warp has read it
  }

  // Where this lane's 16-byte row of the 8 x 8 matrices j and j + 1 of its warp's 16 rows is in a box.
  __device__ static char* matrices(char* box, int j) {
    const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
    return box + row * 128 + (((j + lane / 16) ^ (row % 8)) << 4);
  }
  __device__ static void store_box(char* box, const std::uint32_t (&packed)[16]) {
#pragma unroll
    for (int j = 0; j < 8; j += 2)
      matrix_store_4(matrices(box, j), packed[2 * j], packed[2 * j + 1], packed[2 * j + 2], packed[2 * j + 3]);
  }
  __device__ static void load_box(char* box, std::uint32_t (&packed)[16]) {
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      std::uint32_t r[4];
      matrix_load_4(r, matrices(box, j));
#pragma unroll
      for (int i = 0; i < 4; ++i) packed[2 * j + i] = r[i];
    }
  }
  __device__ static float2 unpacked(std::uint32_t packed) {
    const T* const two = reinterpret_cast<const T*>(&packed);
    return {to_float(two[0]), to_float(two[1])};
  }

  __device__ static void forward_tiles(const Problem& p, char* shared, Control& control, int panel, int group) {
    const int warpgroup = threadIdx.x / 128;
    char* const boxes = shared + L::boxes_at + warpgroup * L::boxes * box_bytes;
    std::uint32_t bias[16];
#pragma unroll
    for (int j = 0; j < 16; ++j)
      bias[j] = static_cast<const std::uint32_t*>(p.bias)[(panel * tile + 8 * j) / 2 + threadIdx.x % 4];
    int turn = warpgroup, pair = 0;
    for (std::int32_t t = group + warpgroup * p.groups; t < p.tiles; t += warpgroups * p.groups, turn += warpgroups) {
      float d[2][half];
      multiply(p, shared, control, turn, d);
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int q = 0; q < 2; ++q) {
          std::uint32_t sums[16], active[16];
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            const float2 add = unpacked(bias[8 * q + j]);
#pragma unroll
            for (int r = 0; r < 2; ++r) {
              const float* const x = d[h] + 4 * (8 * q + j) + 2 * r;
              const std::uint32_t sum = pack<T>(x[0] + add.x, x[1] + add.y);
              const float2 rounded = unpacked(sum);
              sums[2 * j + r] = sum;
              active[2 * j + r] = pack<T>(gelu_of<T>(rounded.x), gelu_of<T>(rounded.y));
            }
          }
          char* const box = boxes + pair * 2 * box_bytes;
          pair = (pair + 1) % (L::boxes / 2);
          if (threadIdx.x % 128 == 0) store_wait<L::boxes / 2 - 1>();
          named_barrier_sync(1 + warpgroup, 128);
          if (p.keeps_c) store_box(box, sums);
          store_box(box + box_bytes, active);
          proxy_fence();
          named_barrier_sync(1 + warpgroup, 128);
          if (threadIdx.x % 128 == 0) {
            const Coordinates at = {{panel * tile + q * half, 0, t * tile + h * half, 0, 0}};
            if (p.keeps_c) tma_store(&p.c, at, box);
            tma_store(&p.activated, at, box + box_bytes);
            store_commit();
          }
        }
    }
    if (threadIdx.x % 128 == 0) store_wait<0>();
  }

  __device__ static void backward_tiles(const Problem& p, char* shared, Control& control, int panel, int group) {
    const int warpgroup = threadIdx.x / 128;
    char* const boxes = shared + L::boxes_at + warpgroup * L::boxes * box_bytes;
    std::uint64_t* const input = control.input[warpgroup];
    // Quarter i of the tile: rows i / 2, columns i % 2.
    const auto at = [&](std::int32_t t, int i) {
      return Coordinates{{panel * tile + i % 2 * half, 0, t * tile + i / 2 * half, 0, 0}};
    };
    const auto fetch = [&](std::int32_t t, int i) {
      barrier_arrive_expect(&input[i % L::boxes], box_bytes);
      tma_load(boxes + i % L::boxes * box_bytes, &p.activated, at(t, i), &input[i % L::boxes]);
    };
    float sum[32] = {};  // of the columns 8 j + 2 (lane mod 4) + {0, 1}
    std::uint32_t parities = 0;
    int turn = warpgroup;
    for (std::int32_t t = group + warpgroup * p.groups; t < p.tiles; t += warpgroups * p.groups, turn += warpgroups) {
      if (threadIdx.x % 128 == 0) {
        store_wait<0>();
        for (int i = 0; i < L::boxes; ++i) fetch(t, i);
      }
      float d[2][half];
      multiply(p, shared, control, turn, d);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        char* const box = boxes + i % L::boxes * box_bytes;
        barrier_wait(&input[i % L::boxes], parities >> (i % L::boxes) & 1);
        parities ^= 1u << (i % L::boxes);
        std::uint32_t packed[16];
        load_box(box, packed);
#pragma unroll
        for (int j = 0; j < 8; ++j)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const float* const x = d[i / 2] + 4 * (8 * (i % 2) + j) + 2 * r;
            const float2 before = unpacked(packed[2 * j + r]), rounded = unpacked(pack<T>(x[0], x[1]));
            const std::uint32_t result =
                pack<T>(rounded.x * gelu_slope_of<T>(before.x), rounded.y * gelu_slope_of<T>(before.y));
            const float2 taken = unpacked(result);
            packed[2 * j + r] = result;
            sum[2 * (8 * (i % 2) + j)] += taken.x;
            sum[2 * (8 * (i % 2) + j) + 1] += taken.y;
          }
        store_box(box, packed);
        proxy_fence();
        named_barrier_sync(1 + warpgroup, 128);
        if (threadIdx.x % 128 == 0) {
          tma_store(&p.c, at(t, i), box);
          store_commit();
          if (i + L::boxes < 4) {
            store_wait<0>();
            fetch(t, i + L::boxes);
          }
        }
      }
    }
    if (threadIdx.x % 128 == 0) store_wait<0>();
    if (p.partials != nullptr) add_columns(p, boxes, sum, panel, group);
  }

  // The sums of the lanes that share columns, then of the warps, in order.
  __device__ static void add_columns(const Problem& p, char* boxes, float (&sum)[32], int panel, int group) {
    const int warpgroup = threadIdx.x / 128, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    auto& of_warp = *reinterpret_cast<float(*)[4][tile]>(boxes);
    named_barrier_sync(1 + warpgroup, 128);  // the stores have read the boxes
#pragma unroll
    for (int k = 0; k < 32; ++k) {
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) sum[k] += __shfl_xor_sync(0xFFFFFFFFu, sum[k], offset);
      if (lane < 4) of_warp[warp][8 * (k / 2) + 2 * lane + k % 2] = sum[k];
    }
    named_barrier_sync(1 + warpgroup, 128);
    const int column = threadIdx.x % 128;
    float total = 0;
#pragma unroll
    for (int w = 0; w < 4; ++w) total += of_warp[w][column];
    p.partials[(group * warpgroups + warpgroup) * p.columns + panel * tile + column] = total;
  }
};

template <class T, bool backward, int most_steps>
__global__ void __launch_bounds__(threads, 1) gemm_gelu_kernel(const __grid_constant__ Problem p) {
  using K = Kernel<T, backward, most_steps>;
  using L = Layout<backward, most_steps>;
  extern __shared__ char memory[];
  char* const shared = memory + (1024 - shared_address(memory) % 1024) % 1024;
  auto& control = *reinterpret_cast<typename K::Control*>(shared + L::control_at);
  const int panel = static_cast<int>(blockIdx.x) % p.panels, group = static_cast<int>(blockIdx.x) / p.panels;
  if (threadIdx.x == 0) {
    barrier_init(&control.b, 1);
    for (int i = 0; i < L::stages; ++i) {
      barrier_init(&control.full[i], 1);
      barrier_init(&control.empty[i], 4);
    }
    for (auto& of_warpgroup : control.input)
      for (std::uint64_t& barrier : of_warpgroup) barrier_init(&barrier, 1);
    barrier_init_fence();
    proxy_fence();
  }
  __syncthreads();
  if (threadIdx.x >= warpgroups * 128) {
    registers_give<40>();
    if (threadIdx.x == warpgroups * 128) K::produce(p, shared, control, panel, group);
    return;
  }
  registers_take<232>();
  barrier_wait(&control.b, 0);
  if (threadIdx.x / 128 == warpgroups - 1) named_barrier_arrive(3, 256);  // the first turn
  if constexpr (backward)
    K::backward_tiles(p, shared, control, panel, group);
  else
    K::forward_tiles(p, shared, control, panel, group);
}

// ---- Host ----

// Boxes of `rows` x 64 elements of a row-major matrix.
CUtensorMap map_of(const View& m, std::int32_t rows) {
  View v = m;
  v.rank = 4;
  const std::int64_t size[4] = {1, m.size[0], 1, m.size[1]};
  const std::int64_t stride[4] = {m.stride[0] * m.size[0], m.stride[0], m.stride[0], 1};
  std::copy_n(size, 4, v.size);
  std::copy_n(stride, 4, v.stride);
  const auto n = static_cast<std::int32_t>(m.size[0]);
  return stream_maps(v, {0, n, n, n}, n, rows, half).complete;
}

int multiprocessors() {
  static const int count = [] {
    int device = 0, found = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
    return found;
  }();
  return count;
}

bool is_hopper() {
  static const bool hopper = [] {
    int device = 0, major = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
    return major == 9;
  }();
  return hopper;
}

bool is_mappable(const View& m) {
  return m.stride[1] == 1 && m.stride[0] % 8 == 0 && m.size[1] % half == 0 &&
         reinterpret_cast<std::uintptr_t>(m.data) % 16 == 0;
}

template <class T, bool backward, int most_steps>
void launch_kernel(const GemmArgs& args, Problem& p, const Launch& launch) {
  const auto kernel = gemm_gelu_kernel<T, backward, most_steps>;
  constexpr std::size_t shared = Layout<backward, most_steps>::shared_bytes;
  allow_shared(kernel, shared);
  const auto blocks = static_cast<unsigned>(p.panels * p.groups);
  run(backward ? "gemm_gelu_backward_sm90" : "gemm_gelu_sm90", kernel, {blocks, threads, shared}, launch, p);
  if (p.partials != nullptr)
    add_partials({p.partials, std::int64_t{warpgroups} * p.groups, p.columns, args.column_sums.as<float>()}, launch);
}

std::int64_t groups_of(std::int64_t panels, std::int64_t tiles) {
  return std::clamp<std::int64_t>(multiprocessors() / panels, 1, tiles);
}

}  // namespace

bool supports_gelu(const GemmArgs& args) {
  const bool backward = args.epilogue == Epilogue::gelu_backward;
  if (!backward && args.epilogue != Epilogue::bias_gelu) return false;
  if (args.a.dtype != args.c.dtype || args.c.dtype == Dtype::f32) return false;
  const std::int64_t rows = args.c.size[0], columns = args.c.size[1], depth = args.a.size[1];
  if (columns % tile != 0 || depth % half != 0 || depth > 8 * half || rows >= (std::int64_t{1} << 31)) return false;
  const View b = args.b;
  const View stored = backward ? b : View{b.data, b.dtype, 2, {b.size[1], b.size[0]}, {b.stride[1], b.stride[0]}};
  if (!is_mappable(args.a) || !is_mappable(stored) || !is_mappable(args.c) || !is_mappable(args.activated))
    return false;
  if (!is_hopper()) return false;
  const std::int64_t panels = columns / tile, tiles = (rows + tile - 1) / tile;
  const std::int64_t groups = groups_of(panels, tiles);
  return tiles >= 4 * groups && warpgroups * groups <= cuda::row_chunks(rows).chunks;
}

void gemm_gelu(const GemmArgs& args, const Launch& launch) {
  const bool backward = args.epilogue == Epilogue::gelu_backward;
  const std::int64_t tiles = (args.c.size[0] + tile - 1) / tile;
  View b = args.b;
  if (!backward) {  // as it is stored
    std::swap(b.size[0], b.size[1]);
    std::swap(b.stride[0], b.stride[1]);
  }
  Problem p = {};
  p.a = map_of(args.a, tile);
  p.b = map_of(b, half);
  p.c = map_of(args.c, half);
  p.activated = map_of(args.activated, half);
  p.tiles = static_cast<std::int32_t>(tiles);
  p.steps = static_cast<std::int32_t>(args.a.size[1] / half);
  p.columns = args.c.size[1];
  p.panels = static_cast<std::int32_t>(p.columns / tile);
  p.groups = static_cast<std::int32_t>(groups_of(p.panels, tiles));
  p.keeps_c = args.c.data != args.activated.data;
  p.bias = args.bias.data;
  p.partials = backward && args.column_sums.given() ? args.partials.as<float>() : nullptr;
  with_gpu_type(args.c.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>) {
      if (backward)
        p.steps <= 4 ? launch_kernel<T, true, 4>(args, p, launch) : launch_kernel<T, true, 8>(args, p, launch);
      else
        p.steps <= 4 ? launch_kernel<T, false, 4>(args, p, launch) : launch_kernel<T, false, 8>(args, p, launch);
    }
  });
}

}  // namespace longstride::kernels::cuda::sm90
