// y = x W^T by panels (kernels/gemm/panel.cuh): a block has 128 columns of W and takes the tiles of rows that a head of
// theirs reads. Every block reads the spans and finds its panel and its tiles (PanelShares); nothing depends on the
// host.
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_types.cuh"
#include "kernels/base/gpu_kind.h"
#include "kernels/gemm/panel.cuh"
#include "kernels/gpu/tensor_map.h"
#include "kernels/span_projection/panel_share.cuh"
#include "kernels/span_projection/span_projection_sm90.h"

namespace longstride::kernels::cuda::sm90 {
namespace {

using namespace panels;
static_assert(ReadRows::tile_rows == tile_rows && ReadRows::columns == panel_columns);

struct ProjectProblem {
  CUtensorMap x, weight, y;  // boxes of 64 x 64; of y 16 x 64
  std::int32_t steps;        // 64 in depth each
  ReadRows rows;
};

template <class T, int most_steps>
struct Kernel {
  using P = Panel<T, false, most_steps>;
  struct Control : P::B {
    std::int32_t first_tile[ReadRows::most_panels];
  };

  __device__ static void produce(const ProjectProblem& p, char* shared, Control& control, const PanelShare& share) {
    P::load_panel(p.weight, shared, control, p.steps, share.panel);
    const std::int32_t count = share.count(p.rows.batch), of_sequence = p.rows.tiles_of_sequence();
    RingSlot slot{0, 1};
    for (std::int32_t n = share.index; n < count; n += share.groups) {
      // Blocks of other panels read most of the same rows, so each prefetches some of their columns.
      const std::int32_t ahead = n + tiles_ahead * share.groups;
      for (int k = share.panel; ahead < count && k < p.steps; k += p.rows.panels)
        tma_prefetch(&p.x, matrix_coordinates(k * half, share.tile(ahead, of_sequence) * tile_rows));
      P::load_tile(p.x, shared, control, p.steps, share.tile(n, of_sequence), slot);
    }
  }

  __device__ static void project(const ProjectProblem& p, char* shared, Control& control, const PanelShare& share) {
    const int warp = uniform(static_cast<int>(threadIdx.x) / 32), warpgroup = warp / 4;
    char* const boxes = P::boxes_of(shared, warp);
    const std::int32_t count = share.count(p.rows.batch), of_sequence = p.rows.tiles_of_sequence();
    int before = warpgroup;
    for (std::int32_t n = share.index + warpgroup * share.groups; n < count;
         n += warpgroups * share.groups, before += warpgroups) {
      float d[half];
      P::multiply(p.steps, shared, control, warpgroup, before, d, [] {});
      const std::int32_t tile = share.tile(n, of_sequence);
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        std::uint32_t packed[16];
#pragma unroll
        for (int j = 0; j < 8; ++j)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const float* const x = d + element_at(8 * q + j, r);
            packed[2 * j + r] = pack<T>(x[0], x[1]);
          }
        if (q == 0) P::empty_boxes(packed);
        P::fill_box(boxes + q * box_bytes, packed);
      }
      P::store_boxes(&p.y, boxes, share.panel, tile, warp);
    }
    if (threadIdx.x % 32 == 0) store_wait<0>();
  }
};

template <class T, int most_steps>
__global__ void __launch_bounds__(threads, 1) project_panels_kernel(const __grid_constant__ ProjectProblem p) {
  using K = Kernel<T, most_steps>;
  extern __shared__ char memory[];
  char* const shared = memory + bytes_to_tile(memory);
  auto& control = *reinterpret_cast<typename K::Control*>(shared + K::P::L::control_at);
  find_first_tiles(p.rows, control.first_tile);
  K::P::init(control);
  const PanelShares shares = panel_shares(p.rows, control.first_tile, static_cast<std::int32_t>(gridDim.x));
  const PanelShare share = share_of_block(shares, static_cast<std::int32_t>(blockIdx.x));
  if (share.idle()) return;
  K::P::run_roles(
      control, [&] { K::produce(p, shared, control, share); }, [&] { K::project(p, shared, control, share); });
}

template <class T, int most_steps>
void launch_kernel(const ProjectProblem& p, const Launch& launch) {
  const auto kernel = project_panels_kernel<T, most_steps>;
  constexpr std::size_t shared = SharedLayout<most_steps>::template bytes<typename Kernel<T, most_steps>::Control>;
  allow_shared(kernel, shared);
  run("span_projection_sm90", kernel, {static_cast<unsigned>(multiprocessors()), threads, shared}, launch, p);
}

}  // namespace

void project_panels(const SpanProjectionArgs& args, const Launch& launch) {
  const ProjectProblem p{.x = matrix_map(args.x.rows(), tile_rows),
                         .weight = matrix_map(args.weight, half),
                         .y = matrix_map(args.y.rows(), box_rows),
                         .steps = static_cast<std::int32_t>(args.x.size(2) / half),
                         .rows = read_rows(args.read, args.y.size(2))};
  with_gpu_type(args.y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>)
      p.steps <= 4 ? launch_kernel<T, 4>(p, launch) : launch_kernel<T, 8>(p, launch);
  });
}

}  // namespace longstride::kernels::cuda::sm90
