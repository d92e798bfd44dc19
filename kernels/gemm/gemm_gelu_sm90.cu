// The products around the activation of a feed-forward branch: many rows, few columns, little depth. A block stays on
// one panel of 128 columns: all of b's panel is in shared memory, and tiles of 64 rows of a stream past it. Three
// warpgroups take turns, so that one multiplies while the others compute the activation of their tiles, each warp
// independently. Blocks of all panels advance down the rows together, so that a is read from memory once and otherwise
// from the second-level cache.
#include <algorithm>

#include "kernels/base/add_partials.cuh"
#include "kernels/base/gpu_kind.h"
#include "kernels/base/row_chunks.h"
#include "kernels/base/vector.cuh"
#include "kernels/gemm/activation.cuh"
#include "kernels/gemm/gemm_gelu_sm90.h"
#include "kernels/gpu/barrier.cuh"
#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/lane.cuh"
#include "kernels/gpu/ring.cuh"
#include "kernels/gpu/shared.cuh"
#include "kernels/gpu/tensor_map.h"
#include "kernels/gpu/tma.cuh"
#include "kernels/gpu/wgmma.cuh"

namespace longstride::kernels::cuda::sm90 {
namespace {

constexpr int panel_columns = 128, tile_rows = 64, half = 64;  // half a panel is a box of TMA, 128 bytes wide
constexpr int warpgroups = 3, threads = 128 * (warpgroups + 1), warps = 4 * warpgroups;
constexpr int stage_bytes = tile_rows * half * 2;  // of a, 64 deep
constexpr int step_bytes = 2 * half * half * 2;    // of b, 64 deep
constexpr int tiles_ahead = 4;
constexpr int box_rows = 16, box_bytes = box_rows * half * 2;  // a warp's part of half a tile

struct GemmGeluProblem {
  CUtensorMap a, b, c, activated;  // boxes of a and b: 64 x 64; of the others: 16 x 64
  std::int32_t tiles, steps;       // of rows; of 64 in depth
  std::int32_t panels, groups;     // blocks: panels x groups, and group g takes the tiles g, g + groups, ...
  std::int64_t columns;
  bool keeps_c;      // forward: c is written unless activated overwrites it
  const void* bias;  // forward
  float* partials;   // backward: (warpgroups * groups, columns), or null
};

// Shared memory: b's panel, the ring of a's stages, and two boxes per warp that stage results and, in backward, what
// the activation read or gave.
template <int most_steps>
struct SharedLayout {
  static constexpr int stages = most_steps <= 4 ? 8 : 6;
  static constexpr int a_at = most_steps * step_bytes, boxes_at = a_at + stages * stage_bytes,
                       control_at = boxes_at + warps * 2 * box_bytes;
  struct Control {
    std::uint64_t b, full[stages], empty[stages], input[warps][2];
    std::uint32_t bias[panel_columns / 2];
  };
  static constexpr std::size_t shared_bytes = control_at + sizeof(Control) + 1024;
};

template <class T, Epilogue epilogue, int most_steps>
struct Kernel {
  static constexpr bool backward = is_backward(epilogue);
  using L = SharedLayout<most_steps>;
  using Control = typename L::Control;

  __device__ static void produce(const GemmGeluProblem& p, char* shared, Control& control, int panel, int group) {
    barrier_arrive_expect(&control.b, static_cast<std::uint32_t>(p.steps) * step_bytes);
    for (int k = 0; k < p.steps; ++k)
      for (int i = 0; i < 2; ++i) {
        // K-major: step by step, 128 rows of 64. MN-major: 64 columns all the way down, then the other 64.
        char* const to = shared + (backward ? i * p.steps + k : 2 * k + i) * (step_bytes / 2);
        const std::int32_t column = panel * panel_columns + i * half, depth = k * half;
        tma_load(to, &p.b, backward ? matrix_coordinates(column, depth) : matrix_coordinates(depth, column),
                 &control.b);
      }
    RingSlot slot{0, 1};  // of "empty", whose first phases need no wait: one use behind
    for (std::int32_t t = group; t < p.tiles; t += p.groups) {
      // The blocks of a group read the same rows at once and their rings are short, so together they prefetch rows into
      // the second-level cache some tiles ahead. Backward, which also reads the activation's input from memory, gains
      // nothing from this.
      for (int k = backward ? p.steps : panel; k < p.steps; k += p.panels)
        tma_prefetch(&p.a, matrix_coordinates(k * half, (t + tiles_ahead * p.groups) * tile_rows));
      for (int k = 0; k < p.steps; ++k) {
        barrier_wait(&control.empty[slot.index], slot.parity);
        barrier_arrive_expect(&control.full[slot.index], stage_bytes);
        tma_load(shared + L::a_at + slot.index * stage_bytes, &p.a, matrix_coordinates(k * half, t * tile_rows),
                 &control.full[slot.index]);
        slot.advance(L::stages);
      }
    }
  }

  // The next tile of this warpgroup, the block's tile number `before`. The warpgroups take turns; otherwise one could
  // mistake a stage's fill of two rounds ago for its own. begun() is called while the first products run.
  template <class Begun>
  __device__ static void multiply(const GemmGeluProblem& p, const char* shared, Control& control, int warpgroup,
                                  int before, float (&d)[half], const Begun& begun) {
    RingSlot slot{before * p.steps % L::stages, static_cast<std::uint32_t>(before * p.steps / L::stages) & 1};
    int last = 0;
    const std::uint64_t a = descriptor<128>(shared + L::a_at);
    std::uint64_t b = backward ? descriptor<128>(shared, static_cast<std::uint32_t>(p.steps) * step_bytes / 2)
                               : descriptor<128>(shared);
    named_barrier_sync(4 + warpgroup, 256);
    for (int k = 0; k < p.steps; ++k) {
      const std::uint64_t a_stage = advanced(a, static_cast<std::uint32_t>(slot.index * stage_bytes));
      barrier_wait(&control.full[slot.index], slot.parity);
      wgmma_hold(d);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < 4; ++step)
        wgmma<T, panel_columns, backward>(d, advanced(a_stage, static_cast<std::uint32_t>(step * 32)),
                                          advanced(b, static_cast<std::uint32_t>(step * (backward ? 16 * 128 : 32))),
                                          k > 0 || step > 0);
      wgmma_commit();
      b = advanced(b, backward ? step_bytes / 2 : step_bytes);
      if (k > 0) {
        wgmma_wait<1>();
        release(control, last);
      } else {
        begun();
      }
      last = slot.index;
      slot.advance(L::stages);
    }
    named_barrier_arrive(4 + (warpgroup + 1) % warpgroups, 256);
    wgmma_wait<0>();
    wgmma_hold(d);
    release(control, last);
  }
  __device__ static void release(Control& control, int stage) {
    if (threadIdx.x % 32 == 0) barrier_arrive(&control.empty[stage]);  // this warp has read it
  }

  // Where this lane's 16-byte row of the 8 x 8 matrices j and j + 1 is in its warp's box.
  __device__ static char* matrices(char* box, int j) {
    const int lane = threadIdx.x % 32, row = lane % 16;
    return box + row * 128 + (((j + lane / 16) ^ (row % 8)) << 4);
  }
  __device__ static void load_box(char* box, std::uint32_t (&packed)[16]) {
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      std::uint32_t r[4];
      load_matrices(r, matrices(box, j));
#pragma unroll
      for (int i = 0; i < 4; ++i) packed[2 * j + i] = r[i];
    }
  }
  __device__ static void fill_box(char* box, const std::uint32_t (&packed)[16]) {
#pragma unroll
    for (int j = 0; j < 8; j += 2)
      store_matrices(matrices(box, j), packed[2 * j], packed[2 * j + 1], packed[2 * j + 2], packed[2 * j + 3]);
  }
  __device__ static float2 unpacked(std::uint32_t packed) {
    float two[2];
    unpack(Words<T, 2>{{packed}}, two);
    return {two[0], two[1]};
  }
  // A warp's part of half q of tile t.
  __device__ static Coordinates place(int panel, std::int32_t t, int q, int warp) {
    return matrix_coordinates(panel * panel_columns + q * half, t * tile_rows + warp % 4 * box_rows);
  }

  __device__ static void forward_tiles(const GemmGeluProblem& p, char* shared, Control& control, int panel, int group) {
    const int warp = uniform(static_cast<int>(threadIdx.x) / 32), warpgroup = warp / 4;
    char* const boxes = shared + L::boxes_at + warp * 2 * box_bytes;
    // Waits until the previous stores have read the boxes, but not before `next` is computed.
    const auto empty_boxes = [&](const std::uint32_t(&next)[16]) {
      std::uint32_t any = 0;
#pragma unroll
      for (const std::uint32_t two : next) any |= two;
      if (threadIdx.x % 32 == 0) store_wait_after(any);
      __syncwarp();
    };
    const auto store_boxes = [&](const CUtensorMap* map, std::int32_t t) {
      proxy_fence();
      __syncwarp();
      if (threadIdx.x % 32 != 0) return;
#pragma unroll
      for (int q = 0; q < 2; ++q) tma_store(map, place(panel, t, q, warp), boxes + q * box_bytes);
      store_commit();
    };
    int before = warpgroup;
    for (std::int32_t t = group + warpgroup * p.groups; t < p.tiles; t += warpgroups * p.groups, before += warpgroups) {
      float d[half];
      multiply(p, shared, control, warpgroup, before, d, [] {});
      std::uint32_t packed[2][16];
#pragma unroll
      for (int q = 0; q < 2; ++q)
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float2 add = unpacked(control.bias[4 * (8 * q + j) + threadIdx.x % 4]);
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const float* const x = d + element_at(8 * q + j, r);
            packed[q][2 * j + r] = pack<T>(x[0] + add.x, x[1] + add.y);
          }
        }
      if (p.keeps_c) {
        empty_boxes(packed[0]);
#pragma unroll
        for (int q = 0; q < 2; ++q) fill_box(boxes + q * box_bytes, packed[q]);
        store_boxes(&p.c, t);
      }
#pragma unroll
      for (int q = 0; q < 2; ++q) {
#pragma unroll
        for (std::uint32_t& two : packed[q]) {
          const float2 sum = unpacked(two);
          two = pack<T>(gelu_of<T>(sum.x), gelu_of<T>(sum.y));
        }
        if (q == 0) empty_boxes(packed[q]);
        fill_box(boxes + q * box_bytes, packed[q]);
      }
      store_boxes(&p.activated, t);
    }
    if (threadIdx.x % 32 == 0) store_wait<0>();
  }

  __device__ static void backward_tiles(const GemmGeluProblem& p, char* shared, Control& control, int panel,
                                        int group) {
    const int warp = uniform(static_cast<int>(threadIdx.x) / 32), warpgroup = warp / 4;
    char* const boxes = shared + L::boxes_at + warp * 2 * box_bytes;
    std::uint64_t* const input = control.input[warp];
    // Loads the activation's input of half q into the box from which the gradient is stored.
    const auto fetch = [&](std::int32_t t, int q) {
      barrier_arrive_expect(&input[q], box_bytes);
      tma_load(boxes + q * box_bytes, &p.activated, place(panel, t, q, warp), &input[q]);
    };
    float sum[32] = {};  // of the columns 8 j + 2 (lane mod 4) + {0, 1}
    std::uint32_t parity = 0;
    int before = warpgroup;
    const std::int32_t first = group + warpgroup * p.groups, apart = warpgroups * p.groups;
    if (threadIdx.x % 32 == 0 && first < p.tiles) fetch(first, 0);
    for (std::int32_t t = first; t < p.tiles; t += apart, before += warpgroups) {
      float d[half];
      multiply(p, shared, control, warpgroup, before, d, [&] {
        if (threadIdx.x % 32 != 0) return;
        store_wait<0>();
        fetch(t, 1);
      });
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        barrier_wait(&input[q], parity);
        std::uint32_t packed[16];
        load_box(boxes + q * box_bytes, packed);
#pragma unroll
        for (int j = 0; j < 8; ++j)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const float* const x = d + element_at(8 * q + j, r);
            const float2 z = unpacked(packed[2 * j + r]), rounded = unpacked(pack<T>(x[0], x[1]));
            packed[2 * j + r] = pack<T>(through_activation<epilogue, T>(rounded.x, z.x),
                                        through_activation<epilogue, T>(rounded.y, z.y));
            const float2 result = unpacked(packed[2 * j + r]);
            sum[2 * (8 * q + j)] += result.x;
            sum[2 * (8 * q + j) + 1] += result.y;
          }
        fill_box(boxes + q * box_bytes, packed);
        proxy_fence();
        __syncwarp();
        if (threadIdx.x % 32 == 0) {
          tma_store(&p.c, place(panel, t, q, warp), boxes + q * box_bytes);
          store_commit();
          if (q == 1 && t + apart < p.tiles) {  // by now the first box has been read, or nearly so
            store_wait<1>();
            fetch(t + apart, 0);
          }
        }
      }
      parity ^= 1;
    }
    if (threadIdx.x % 32 == 0) store_wait<0>();
    if (p.partials != nullptr) add_columns(p, shared + L::boxes_at + warpgroup * 8 * box_bytes, sum, panel, group);
  }

  // Adds the sums of the lanes that share columns, then those of the warps, in order.
  __device__ static void add_columns(const GemmGeluProblem& p, char* boxes, float (&sum)[32], int panel, int group) {
    const int warpgroup = threadIdx.x / 128, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    auto& of_warp = *reinterpret_cast<float(*)[4][panel_columns]>(boxes);
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
    p.partials[(group * warpgroups + warpgroup) * p.columns + panel * panel_columns + column] = total;
  }
};

template <class T, Epilogue epilogue, int most_steps>
__global__ void __launch_bounds__(threads, 1) gemm_gelu_kernel(const __grid_constant__ GemmGeluProblem p) {
  using K = Kernel<T, epilogue, most_steps>;
  constexpr bool backward = is_backward(epilogue);
  using L = SharedLayout<most_steps>;
  extern __shared__ char memory[];
  char* const shared = memory + bytes_to_tile(memory);
  auto& control = *reinterpret_cast<typename K::Control*>(shared + L::control_at);
  const int panel = static_cast<int>(blockIdx.x) % p.panels, group = static_cast<int>(blockIdx.x) / p.panels;
  if (!backward && threadIdx.x < panel_columns / 2)
    control.bias[threadIdx.x] =
        static_cast<const std::uint32_t*>(p.bias)[panel * panel_columns / 2 + static_cast<int>(threadIdx.x)];
  if (threadIdx.x == 0) {
    barrier_init(&control.b, 1);
    for (int i = 0; i < L::stages; ++i) {
      barrier_init(&control.full[i], 1);
      barrier_init(&control.empty[i], 4);
    }
    for (auto& of_warp : control.input)
      for (std::uint64_t& barrier : of_warp) barrier_init(&barrier, 1);
    barrier_init_fence();
    proxy_fence();
  }
  __syncthreads();
  if (threadIdx.x >= warpgroups * 128) {
    registers_give<40>();
    if (threadIdx.x == warpgroups * 128) K::produce(p, shared, control, panel, group);
    return;
  }
  registers_take<152>();
  barrier_wait(&control.b, 0);
  if (threadIdx.x / 128 == warpgroups - 1) named_barrier_arrive(4, 256);  // the first turn
  if constexpr (backward)
    K::backward_tiles(p, shared, control, panel, group);
  else
    K::forward_tiles(p, shared, control, panel, group);
}

// ---- Host ----

bool is_mappable(const Tensor& m) {
  return m.stride(1) == 1 && m.stride(0) % 8 == 0 && m.size(1) % half == 0 &&
         reinterpret_cast<std::uintptr_t>(m.data()) % 16 == 0;
}

template <class T, Epilogue epilogue, int most_steps>
void launch_kernel(const GemmArgs& args, GemmGeluProblem& p, const Launch& launch) {
  const auto kernel = gemm_gelu_kernel<T, epilogue, most_steps>;
  constexpr std::size_t shared = SharedLayout<most_steps>::shared_bytes;
  allow_shared(kernel, shared);
  const auto blocks = static_cast<unsigned>(p.panels * p.groups);
  constexpr const char* name = epilogue == Epilogue::bias_gelu       ? "gemm_gelu_sm90"
                               : epilogue == Epilogue::gelu_backward ? "gemm_gelu_backward_sm90"
                                                                     : "gemm_relu_backward_sm90";
  run(name, kernel, {blocks, threads, shared}, launch, p);
  if (p.partials != nullptr)
    add_partials({p.partials, std::int64_t{warpgroups} * p.groups, p.columns, args.column_sums.as<float>()}, launch);
}

template <class T, Epilogue epilogue>
void launch_for_depth(const GemmArgs& args, GemmGeluProblem& p, const Launch& launch) {
  p.steps <= 4 ? launch_kernel<T, epilogue, 4>(args, p, launch) : launch_kernel<T, epilogue, 8>(args, p, launch);
}

std::int64_t groups_of(std::int64_t panels, std::int64_t tiles) {
  return std::clamp<std::int64_t>(multiprocessors() / panels, 1, tiles);
}

}  // namespace

bool supports_fused(const GemmArgs& args) {
  const bool backward = is_backward(args.epilogue);
  if (!backward && args.epilogue != Epilogue::bias_gelu) return false;
  if (args.a.dtype() != args.c.dtype() || args.c.dtype() == Dtype::f32) return false;
  const std::int64_t rows = args.c.size(0), columns = args.c.size(1), depth = args.a.size(1);
  if (columns % panel_columns != 0 || depth % half != 0 || depth > 8 * half || rows >= (std::int64_t{1} << 31))
    return false;
  const Tensor stored = backward ? args.b : args.b.transposed();
  if (!is_mappable(args.a) || !is_mappable(stored) || !is_mappable(args.c) || !is_mappable(args.activated))
    return false;
  if (!is_hopper()) return false;
  const std::int64_t panels = columns / panel_columns, tiles = (rows + tile_rows - 1) / tile_rows;
  const std::int64_t groups = groups_of(panels, tiles);
  return tiles >= 2 * warpgroups * groups && warpgroups * groups <= cuda::row_chunks(rows).chunks;
}

void gemm_fused(const GemmArgs& args, const Launch& launch) {
  const bool backward = is_backward(args.epilogue);
  const std::int64_t tiles = (args.c.size(0) + tile_rows - 1) / tile_rows;
  const Tensor stored = backward ? args.b : args.b.transposed();
  GemmGeluProblem p = {};
  p.a = matrix_map(args.a, tile_rows);
  p.b = matrix_map(stored, half);
  p.c = matrix_map(args.c, box_rows);
  p.activated = matrix_map(args.activated, box_rows);
  p.tiles = static_cast<std::int32_t>(tiles);
  p.steps = static_cast<std::int32_t>(args.a.size(1) / half);
  p.columns = args.c.size(1);
  p.panels = static_cast<std::int32_t>(p.columns / panel_columns);
  p.groups = static_cast<std::int32_t>(groups_of(p.panels, tiles));
  p.keeps_c = args.c.data() != args.activated.data();
  p.bias = args.bias.data();
  p.partials = backward && args.column_sums.given() ? args.scratch.as<float>() : nullptr;
  with_gpu_type(args.c.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>) {
      if (args.epilogue == Epilogue::bias_gelu)
        launch_for_depth<T, Epilogue::bias_gelu>(args, p, launch);
      else if (args.epilogue == Epilogue::gelu_backward)
        launch_for_depth<T, Epilogue::gelu_backward>(args, p, launch);
      else
        launch_for_depth<T, Epilogue::relu_backward>(args, p, launch);
    }
  });
}

}  // namespace longstride::kernels::cuda::sm90
