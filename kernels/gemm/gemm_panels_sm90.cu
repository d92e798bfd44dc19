// Plain products by panels (panel.cuh): while one warpgroup multiplies, the others add the bias to their tiles, and
// what else is added, and store them by TMA. What is added arrives in the boxes that the results leave from.
#include "kernels/base/cuda_types.cuh"
#include "kernels/gemm/gemm_panels_sm90.h"
#include "kernels/gemm/panel_division.h"

namespace longstride::kernels::cuda::sm90 {
namespace {

using namespace panels;

struct PanelsProblem : PanelProduct {
  CUtensorMap addend;  // boxes of 16 x 64
  bool adds;
};

template <class T, bool b_by_rows, int most_steps>
struct PanelsKernel {
  using P = Panel<T, b_by_rows, most_steps>;
  using Control = EpilogueControl<P::L::stages>;
  static constexpr bool prefetches = true;

  __device__ static void multiply_tiles(const PanelsProblem& p, char* shared, Control& control, int panel, int group) {
    if (p.adds)
      multiply_tiles<true>(p, shared, control, panel, group);
    else
      multiply_tiles<false>(p, shared, control, panel, group);
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
  run_block<PanelsKernel<T, b_by_rows, most_steps>>(p);
}

// ---- Host ----

bool by_rows(const Tensor& b) { return b.stride(1) == 1; }
Tensor stored(const Tensor& b) { return by_rows(b) ? b : b.transposed(); }

template <class T, bool b_by_rows, int most_steps>
void launch_kernel(const PanelsProblem& p, const Launch& launch) {
  run_panels<PanelsKernel<T, b_by_rows, most_steps>>("gemm_panels_sm90", gemm_panels_kernel<T, b_by_rows, most_steps>,
                                                     p, launch);
}

template <class T, bool b_by_rows>
void launch_for_depth(const PanelsProblem& p, const Launch& launch) {
  p.steps <= 4 ? launch_kernel<T, b_by_rows, 4>(p, launch) : launch_kernel<T, b_by_rows, 8>(p, launch);
}

}  // namespace

bool supports_panels(const GemmArgs& args) {
  if (args.epilogue != Epilogue::none && args.epilogue != Epilogue::bias) return false;
  if (args.accumulate || args.c.rank() != 2) return false;
  if (args.addend.given() && !is_mappable(args.addend)) return false;
  return are_panels(args, stored(args.b));
}

void gemm_panels(const GemmArgs& args, const Launch& launch) {
  const bool adds = args.addend.given();
  const PanelsProblem p = {panel_product(args, stored(args.b)),
                           adds ? matrix_map(args.addend, box_rows) : CUtensorMap{}, adds};
  with_gpu_type(args.c.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>)
      by_rows(args.b) ? launch_for_depth<T, true>(p, launch) : launch_for_depth<T, false>(p, launch);
  });
}

}  // namespace longstride::kernels::cuda::sm90
