// Plain products by panels (panel.cuh): while one warpgroup multiplies, the others add the bias to their tiles, and
// what else is added, and store them by TMA. What is added arrives in the boxes that the results leave from.
#include "kernels/base/cuda_types.cuh"
#include "kernels/gemm/gemm_panels_sm90.h"
#include "kernels/gemm/panel_division.h"
#include "kernels/gpu/tensor_map.h"

namespace longstride::kernels::cuda::sm90 {
namespace {

using namespace panels;

struct PanelsProblem {
  CUtensorMap a, b, c, addend;  // boxes of a and b: 64 x 64; of the others: 16 x 64
  std::int32_t tiles, steps;    // of rows; of 64 in depth
  std::int32_t panels, groups;  // blocks: panels x groups, and group g takes the tiles g, g + groups, ...
  bool adds;
  const std::uint16_t* bias;  // or null
};

template <class T, bool b_by_rows, int most_steps>
struct PanelsKernel {
  using P = Panel<T, b_by_rows, most_steps>;
  using L = typename P::L;
  struct Control : P::B {
    std::uint64_t input[warps][2];
    std::uint32_t bias[panel_columns / 2];
  };

  __device__ static void produce(const PanelsProblem& p, char* shared, Control& control, int panel, int group) {
    P::load_panel(p.b, shared, control, p.steps, panel);
    RingSlot slot{0, 1};
    for (std::int32_t t = group; t < p.tiles; t += p.groups) {
      // The blocks of a group read the same rows at once, so together they prefetch rows into the second-level cache.
      for (int k = panel; k < p.steps; k += p.panels)
        tma_prefetch(&p.a, matrix_coordinates(k * half, (t + tiles_ahead * p.groups) * tile_rows));
      P::load_tile(p.a, shared, control, p.steps, t, slot);
    }
  }

  template <bool adds>
  __device__ static void multiply_tiles(const PanelsProblem& p, char* shared, Control& control, int panel, int group) {
    const int warp = uniform(this_warp()), warpgroup = warp / 4;
    char* const boxes = P::boxes_of(shared, warp);
    std::uint64_t* const input = control.input[warp];
    std::uint32_t parity = 0;
    int before = warpgroup;
    for (std::int32_t t = group + warpgroup * p.groups; t < p.tiles; t += warpgroups * p.groups, before += warpgroups) {
      float d[half];
      P::multiply(p.steps, shared, control, warpgroup, before, d, [&] {
        if constexpr (adds) {
          if (this_lane() != 0) return;
          store_wait<0>();
          for (int q = 0; q < 2; ++q) {
            barrier_arrive_expect(&input[q], box_bytes);
            tma_load(boxes + q * box_bytes, &p.addend, P::place(panel, t, q, warp), &input[q]);
          }
        }
      });
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        std::uint32_t packed[16];
        if constexpr (adds) {
          barrier_wait(&input[q], parity);
          P::load_box(boxes + q * box_bytes, packed);
        }
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float2 bias = unpack<T>(control.bias[4 * (8 * q + j) + this_lane() % 4]);
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const float* const x = d + element_at(8 * q + j, r);
            float2 sum = {x[0], x[1]};
            if constexpr (adds) {
              const float2 more = unpack<T>(packed[2 * j + r]);
              sum = {sum.x + more.x, sum.y + more.y};
            }
            packed[2 * j + r] = pack<T>(sum.x + bias.x, sum.y + bias.y);
          }
        }
        if (!adds && q == 0) P::empty_boxes(packed);
        P::fill_box(boxes + q * box_bytes, packed);
      }
      P::store_boxes(&p.c, boxes, panel, t, warp);
      parity ^= 1;
    }
    if (this_lane() == 0) store_wait<0>();
  }
};

template <class T, bool b_by_rows, int most_steps>
__global__ void __launch_bounds__(threads, 1) gemm_panels_kernel(const __grid_constant__ PanelsProblem p) {
  using K = PanelsKernel<T, b_by_rows, most_steps>;
  extern __shared__ char memory[];
  char* const shared = memory + bytes_to_tile(memory);
  auto& control = *reinterpret_cast<typename K::Control*>(shared + K::L::control_at);
  const int panel = static_cast<int>(blockIdx.x) % p.panels, group = static_cast<int>(blockIdx.x) / p.panels;
  if (threadIdx.x < panel_columns / 2) {
    constexpr std::uint32_t two_zeros = 0x80008000u;  // negative ones: x + -0 is x for every x
    const std::uint16_t* const two = p.bias + panel * panel_columns + 2 * threadIdx.x;
    control.bias[threadIdx.x] = p.bias == nullptr ? two_zeros : two[0] | static_cast<std::uint32_t>(two[1]) << 16;
  }
  if (threadIdx.x == 0) {
    control.init();
    for (auto& of_warp : control.input)
      for (std::uint64_t& barrier : of_warp) barrier_init(&barrier, 1);
    barrier_init_fence();
    proxy_fence();
  }
  __syncthreads();
  if (threadIdx.x >= warpgroups * 128) {
    registers_give<producer_registers>();
    if (threadIdx.x == warpgroups * 128) K::produce(p, shared, control, panel, group);
    return;
  }
  registers_take<consumer_registers>();
  K::P::begin_turns(control);
  if (p.adds)
    K::template multiply_tiles<true>(p, shared, control, panel, group);
  else
    K::template multiply_tiles<false>(p, shared, control, panel, group);
}

// ---- Host ----

bool by_rows(const Tensor& b) { return b.stride(1) == 1; }
Tensor stored(const Tensor& b) { return by_rows(b) ? b : b.transposed(); }

template <class T, bool b_by_rows, int most_steps>
void launch_kernel(const PanelsProblem& p, const Launch& launch) {
  const auto kernel = gemm_panels_kernel<T, b_by_rows, most_steps>;
  using K = PanelsKernel<T, b_by_rows, most_steps>;
  constexpr std::size_t shared = K::L::template bytes<typename K::Control>;
  allow_shared(kernel, shared);
  run("gemm_panels_sm90", kernel, {static_cast<unsigned>(p.panels * p.groups), threads, shared}, launch, p);
}

template <class T, bool b_by_rows>
void launch_for_depth(const PanelsProblem& p, const Launch& launch) {
  p.steps <= 4 ? launch_kernel<T, b_by_rows, 4>(p, launch) : launch_kernel<T, b_by_rows, 8>(p, launch);
}

}  // namespace

bool supports_panels(const GemmArgs& args) {
  if (args.epilogue != Epilogue::none && args.epilogue != Epilogue::bias) return false;
  if (args.accumulate || args.c.rank() != 2 || args.a.dtype() != args.c.dtype() || args.c.dtype() == Dtype::f32)
    return false;
  const std::int64_t rows = args.c.size(0), columns = args.c.size(1), depth = args.a.size(1);
  if (!are_panels(rows, columns, depth) || !is_mappable(args.a) || !is_mappable(stored(args.b)) || !is_mappable(args.c))
    return false;
  if (args.addend.given() && !is_mappable(args.addend)) return false;
  return is_hopper() && Division(rows, columns, depth).fills_warpgroups();
}

void gemm_panels(const GemmArgs& args, const Launch& launch) {
  const Division division(args.c.size(0), args.c.size(1), args.a.size(1));
  PanelsProblem p = {};
  p.a = matrix_map(args.a, tile_rows);
  p.b = matrix_map(stored(args.b), half);
  p.c = matrix_map(args.c, box_rows);
  p.tiles = static_cast<std::int32_t>(division.tiles);
  p.steps = static_cast<std::int32_t>(division.steps);
  p.panels = static_cast<std::int32_t>(division.panels);
  p.groups = static_cast<std::int32_t>(division.groups);
  p.adds = args.addend.given();
  if (p.adds) p.addend = matrix_map(args.addend, box_rows);
  if (args.bias.given()) p.bias = static_cast<const std::uint16_t*>(args.bias.data());
  with_gpu_type(args.c.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>)
      by_rows(args.b) ? launch_for_depth<T, true>(p, launch) : launch_for_depth<T, false>(p, launch);
  });
}

}  // namespace longstride::kernels::cuda::sm90
