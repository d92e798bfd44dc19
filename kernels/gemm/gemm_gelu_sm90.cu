// The products around the activation of a feed-forward branch, by panels (panel.cuh): while one warpgroup multiplies,
// the others compute the activation of their tiles. Blocks of all panels advance down the rows together, so that a is
// read from memory once and otherwise from the second-level cache.
#include "kernels/base/add_partials.cuh"
#include "kernels/base/cuda_types.cuh"
#include "kernels/base/row_chunks.h"
#include "kernels/gemm/activation.cuh"
#include "kernels/gemm/gemm_gelu_sm90.h"
#include "kernels/gemm/panel_division.h"

namespace longstride::kernels::cuda::sm90 {
namespace {

using namespace panels;

struct GemmGeluProblem : PanelProduct {
  CUtensorMap activated;  // boxes of 16 x 64
  std::int64_t columns;
  bool keeps_c;     // forward: c is written unless activated overwrites it
  float* partials;  // backward: (warpgroups * groups, columns), or null
};

// In a warp's boxes are results and, in backward, what the activation read or gave.
template <class T, Epilogue epilogue, int most_steps>
struct Kernel {
  static constexpr bool backward = is_backward(epilogue);
  using P = Panel<T, backward, most_steps>;
  using Control = EpilogueControl<P::L::stages>;
  static constexpr bool prefetches = !backward;  // backward also reads the activation's input, and gains nothing

  __device__ static void multiply_tiles(const GemmGeluProblem& p, char* shared, Control& control, int panel,
                                        int group) {
    if constexpr (backward)
      backward_tiles(p, shared, control, panel, group);
    else
      forward_tiles(p, shared, control, panel, group);
  }

  __device__ static void forward_tiles(const GemmGeluProblem& p, char* shared, Control& control, int panel, int group) {
    const int warp = uniform(static_cast<int>(threadIdx.x) / 32), warpgroup = warp / 4;
    char* const boxes = P::boxes_of(shared, warp);
    int before = warpgroup;
    for (std::int32_t t = group + warpgroup * p.groups; t < p.tiles; t += warpgroups * p.groups, before += warpgroups) {
      float d[half];
      P::multiply(p.steps, shared, control, warpgroup, before, d, [] {});
      std::uint32_t packed[2][16];
#pragma unroll
      for (int q = 0; q < 2; ++q)
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float2 add = unpack<T>(control.bias[4 * (8 * q + j) + threadIdx.x % 4]);
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const float* const x = d + element_at(8 * q + j, r);
            packed[q][2 * j + r] = pack<T>(x[0] + add.x, x[1] + add.y);
          }
        }
      if (p.keeps_c) {
        P::empty_boxes(packed[0]);
#pragma unroll
        for (int q = 0; q < 2; ++q) P::fill_box(boxes + q * box_bytes, packed[q]);
        P::store_boxes(&p.c, boxes, panel, t, warp);
      }
#pragma unroll
      for (int q = 0; q < 2; ++q) {
#pragma unroll
        for (std::uint32_t& two : packed[q]) {
          const float2 sum = unpack<T>(two);
          two = pack<T>(gelu_of<T>(sum.x), gelu_of<T>(sum.y));
        }
        if (q == 0) P::empty_boxes(packed[q]);
        P::fill_box(boxes + q * box_bytes, packed[q]);
      }
      P::store_boxes(&p.activated, boxes, panel, t, warp);
    }
    if (threadIdx.x % 32 == 0) store_wait<0>();
  }

  __device__ static void backward_tiles(const GemmGeluProblem& p, char* shared, Control& control, int panel,
                                        int group) {
    const int warp = uniform(static_cast<int>(threadIdx.x) / 32), warpgroup = warp / 4;
    char* const boxes = P::boxes_of(shared, warp);
    std::uint64_t* const input = control.input[warp];
    // Loads the activation's input of half q into the box from which the gradient is stored.
    const auto fetch = [&](std::int32_t t, int q) {
      barrier_arrive_expect(&input[q], box_bytes);
      tma_load(boxes + q * box_bytes, &p.activated, P::place(panel, t, q, warp), &input[q]);
    };
    float sum[32] = {};  // columns 8 j + 2 (lane mod 4) + {0, 1}
    std::uint32_t parity = 0;
    int before = warpgroup;
    const std::int32_t first = group + warpgroup * p.groups, apart = warpgroups * p.groups;
    if (threadIdx.x % 32 == 0 && first < p.tiles) fetch(first, 0);
    for (std::int32_t t = first; t < p.tiles; t += apart, before += warpgroups) {
      float d[half];
      P::multiply(p.steps, shared, control, warpgroup, before, d, [&] {
        if (threadIdx.x % 32 != 0) return;
        store_wait<0>();
        fetch(t, 1);
      });
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        barrier_wait(&input[q], parity);
        std::uint32_t packed[16];
        P::load_box(boxes + q * box_bytes, packed);
#pragma unroll
        for (int j = 0; j < 8; ++j)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const float* const x = d + element_at(8 * q + j, r);
            const float2 z = unpack<T>(packed[2 * j + r]), rounded = unpack<T>(pack<T>(x[0], x[1]));
            packed[2 * j + r] = pack<T>(through_activation<epilogue, T>(rounded.x, z.x),
                                        through_activation<epilogue, T>(rounded.y, z.y));
            const float2 result = unpack<T>(packed[2 * j + r]);
            sum[2 * (8 * q + j)] += result.x;
            sum[2 * (8 * q + j) + 1] += result.y;
          }
        P::fill_box(boxes + q * box_bytes, packed);
        proxy_fence();
        __syncwarp();
        if (threadIdx.x % 32 == 0) {
          tma_store(&p.c, P::place(panel, t, q, warp), boxes + q * box_bytes);
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
    if (p.partials != nullptr) add_columns(p, shared + P::L::boxes_at + warpgroup * 8 * box_bytes, sum, panel, group);
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
  run_block<Kernel<T, epilogue, most_steps>>(p);
}

// ---- Host ----

template <class T, Epilogue epilogue, int most_steps>
void launch_kernel(const GemmArgs& args, GemmGeluProblem& p, const Launch& launch) {
  constexpr const char* name = epilogue == Epilogue::bias_gelu       ? "gemm_gelu_sm90"
                               : epilogue == Epilogue::gelu_backward ? "gemm_gelu_backward_sm90"
                                                                     : "gemm_relu_backward_sm90";
  run_panels<Kernel<T, epilogue, most_steps>>(name, gemm_gelu_kernel<T, epilogue, most_steps>, p, launch);
  if (p.partials != nullptr)
    add_partials({p.partials, std::int64_t{warpgroups} * p.groups, p.columns, args.column_sums.as<float>()}, launch);
}

template <class T, Epilogue epilogue>
void launch_for_depth(const GemmArgs& args, GemmGeluProblem& p, const Launch& launch) {
  p.steps <= 4 ? launch_kernel<T, epilogue, 4>(args, p, launch) : launch_kernel<T, epilogue, 8>(args, p, launch);
}

// As it is in memory, row by row.
Tensor stored(const GemmArgs& args) { return is_backward(args.epilogue) ? args.b : args.b.transposed(); }

}  // namespace

bool supports_fused(const GemmArgs& args) {
  if (!is_backward(args.epilogue) && args.epilogue != Epilogue::bias_gelu) return false;
  if (!are_panels(args, stored(args)) || !is_mappable(args.activated)) return false;
  return warpgroups * division_of(args).groups <= cuda::row_chunks(args.c.size(0)).chunks;
}

void gemm_fused(const GemmArgs& args, const Launch& launch) {
  const bool sums = is_backward(args.epilogue) && args.column_sums.given();
  GemmGeluProblem p = {panel_product(args, stored(args)), matrix_map(args.activated, box_rows), args.c.size(1),
                       args.c.data() != args.activated.data(), sums ? args.scratch.as<float>() : nullptr};
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
