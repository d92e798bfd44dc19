// dW += dy^T x by panels of 128 columns of dy and 256 of x, over the tiles of rows that a head of the panel reads. Both
// operands of the products run along the rows of their tiles. Several blocks share the tiles of a panel (PanelShares);
// each writes a sum of its own, and a second kernel adds these in order.
#include <algorithm>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_types.cuh"
#include "kernels/base/gpu_kind.h"
#include "kernels/gpu/barrier.cuh"
#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/lane.cuh"
#include "kernels/gpu/ring.cuh"
#include "kernels/gpu/shared.cuh"
#include "kernels/gpu/tensor_map.h"
#include "kernels/gpu/tma.cuh"
#include "kernels/gpu/wgmma.cuh"
#include "kernels/span_projection/panel_share.cuh"
#include "kernels/span_projection/span_projection_sm90.h"

namespace longstride::kernels::cuda::sm90 {
namespace {

constexpr int tile_rows = ReadRows::tile_rows, dy_columns = ReadRows::columns, x_columns = ReadRows::gradient_columns;
constexpr int warpgroups = 2, threads = (warpgroups + 1) * warpgroup_threads;  // a warpgroup has 64 columns of dy
constexpr int producer_registers = 40, consumer_registers = 232;
constexpr int box_columns = 64, box_bytes = tile_rows * box_columns * 2;
constexpr int dy_boxes = dy_columns / box_columns, x_boxes = x_columns / box_columns;
constexpr int stages = 4, stage_bytes = (dy_boxes + x_boxes) * box_bytes;
constexpr int halves = 2, half_boxes = x_boxes / halves;  // halves of x: products have 128 columns
constexpr int step_bytes = 16 * box_columns * 2;          // from 16 rows to the next in a box

struct GradientProblem {
  CUtensorMap dy, x;
  std::int32_t column_tiles;  // column tiles of x; blocks come in groups of as many
  ReadRows rows;
  float* partials;  // (blocks, 128, 256)
};

struct Control {
  std::uint64_t full[stages], empty[stages];
  std::int32_t first_tile[ReadRows::most_panels];
};
constexpr std::size_t shared_bytes = stages * stage_bytes + sizeof(Control) + tile_alignment;

__device__ void produce(const GradientProblem& p, char* shared, Control& control, const PanelShare& share,
                        int column_tile) {
  RingSlot slot;
  for (std::int32_t n = share.index; n < share.count(p.rows.batch); n += share.groups) {
    const std::int32_t row = share.tile(n, p.rows.tiles_of_sequence()) * tile_rows;
    char* to = shared + slot.index * stage_bytes;
    std::uint64_t* const full = &control.full[slot.index];
    barrier_wait(&control.empty[slot.index], slot.parity ^ 1);
    barrier_arrive_expect(full, stage_bytes);
    for (int i = 0; i < dy_boxes; ++i, to += box_bytes)
      tma_load(to, &p.dy, matrix_coordinates(share.panel * dy_columns + i * box_columns, row), full);
    for (int i = 0; i < x_boxes; ++i, to += box_bytes)  // zeros beyond the last column
      tma_load(to, &p.x, matrix_coordinates(column_tile * x_columns + i * box_columns, row), full);
    slot.advance(stages);
  }
}

using Sums = float[halves][64];

template <class T>
__device__ void multiply(const GradientProblem& p, const char* shared, Control& control, const PanelShare& share,
                         Sums& d) {
  const int warpgroup = uniform(this_warpgroup());
  const std::uint64_t dy = descriptor<128>(shared + warpgroup * box_bytes);
  const std::uint64_t x = descriptor<128>(shared + dy_boxes * box_bytes, box_bytes);
  const auto release = [&](int stage) {
    if (this_lane() == 0) barrier_arrive(&control.empty[stage]);  // this warp has read it
  };
  RingSlot slot;
  int last = -1;
  for (std::int32_t n = share.index; n < share.count(p.rows.batch); n += share.groups) {
    const auto stage = static_cast<std::uint32_t>(slot.index * stage_bytes);
    barrier_wait(&control.full[slot.index], slot.parity);
#pragma unroll
    for (auto& half : d) wgmma_hold(half);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < tile_rows / 16; ++k)
#pragma unroll
      for (int h = 0; h < halves; ++h)
        wgmma_rows<T>(d[h], advanced(dy, stage + static_cast<std::uint32_t>(k * step_bytes)),
                      advanced(x, stage + static_cast<std::uint32_t>(h * half_boxes * box_bytes + k * step_bytes)),
                      last >= 0 || k > 0);
    wgmma_commit();
    wgmma_wait<1>();
    if (last >= 0) release(last);
    last = slot.index;
    slot.advance(stages);
  }
  wgmma_wait<0>();
#pragma unroll
  for (auto& half : d) {
    wgmma_hold(half);
#pragma unroll
    for (float& sum : half) sum = last >= 0 ? sum : 0;
  }
}

__device__ void store(const Sums& d, float* to) {
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 + this_lane() / 4, column = this_lane() % 4 * 2;
#pragma unroll
  for (int h = 0; h < halves; ++h)
#pragma unroll
    for (int j = 0; j < 16; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float* const sum = d[h] + element_at(j, r);
        *reinterpret_cast<float2*>(to + (row + 8 * r) * x_columns + h * (x_columns / halves) + 8 * j + column) = {
            sum[0], sum[1]};
      }
}

template <class T>
__global__ void __launch_bounds__(threads, 1) weight_gradient_kernel(const __grid_constant__ GradientProblem p) {
  extern __shared__ char memory[];
  char* const shared = memory + bytes_to_tile(memory);
  auto& control = *reinterpret_cast<Control*>(shared + stages * stage_bytes);
  const auto block = static_cast<std::int32_t>(blockIdx.x);
  find_first_tiles(p.rows, control.first_tile);
  if (this_thread() == 0) {
    for (int i = 0; i < stages; ++i) {
      barrier_init(&control.full[i], 1);
      barrier_init(&control.empty[i], warpgroups * warpgroup_warps);
    }
    barrier_init_fence();
    proxy_fence();
  }
  __syncthreads();
  const std::int32_t units = static_cast<std::int32_t>(gridDim.x) / p.column_tiles;
  const PanelShare share = share_of_block(panel_shares(p.rows, control.first_tile, units), block / p.column_tiles);
  if (share.idle()) return;
  if (this_warpgroup() == warpgroups) {
    registers_give<producer_registers>();
    if (this_thread() == warpgroups * warpgroup_threads) produce(p, shared, control, share, block % p.column_tiles);
    return;
  }
  registers_take<consumer_registers>();
  Sums d;
  multiply<T>(p, shared, control, share, d);
  store(d, p.partials + static_cast<std::int64_t>(block) * dy_columns * x_columns);
}

// A block adds the sums of one row of dW.
__global__ void __launch_bounds__(512)
    add_weight_gradients(const ReadRows rows, const float* partials, std::int32_t blocks, std::int32_t column_tiles,
                         float* dweight, std::int64_t stride) {
  __shared__ std::int32_t first_tile[ReadRows::most_panels];
  find_first_tiles(rows, first_tile);
  __syncthreads();
  const auto row = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t panel = row / dy_columns, column = this_thread(), column_tile = column / x_columns;
  const PanelShares shares = panel_shares(rows, first_tile, blocks / column_tiles);
  constexpr std::int64_t elements = dy_columns * x_columns;
  const float* from = partials + (shares.first_block(panel) * column_tiles + column_tile) * elements +
                      row % dy_columns * x_columns + column % x_columns;
  const std::int64_t apart = column_tiles * elements;
  const std::int32_t groups = shares.groups(panel);
  float sum = 0;
#pragma unroll 8
  for (std::int32_t g = 0; g < groups; ++g) sum += from[g * apart];
  dweight[row * stride + column] += sum;
}

template <class T>
void launch_kernels(const SpanProjectionBackwardArgs& args, const GradientProblem& p, const Launch& launch) {
  const std::int32_t most = std::min(multiprocessors(), ReadRows::most_gradient_blocks);
  const std::int32_t blocks = most / p.column_tiles * p.column_tiles;
  const auto kernel = weight_gradient_kernel<T>;
  allow_shared(kernel, shared_bytes);
  run("span_projection_backward_sm90", kernel, {static_cast<unsigned>(blocks), threads, shared_bytes}, launch, p);
  run("add_weight_gradients", add_weight_gradients,
      {static_cast<unsigned>(args.dweight.size(0)), static_cast<unsigned>(args.dweight.size(1))}, launch, p.rows,
      p.partials, blocks, p.column_tiles, args.dweight.as<float>(), args.dweight.stride(0));
}

}  // namespace

void project_panels_backward(const SpanProjectionBackwardArgs& args, const Launch& launch) {
  const GradientProblem p{.dy = matrix_map(args.dy.rows(), tile_rows),
                          .x = matrix_map(args.x.rows(), tile_rows),
                          .column_tiles = static_cast<std::int32_t>((args.x.size(2) + x_columns - 1) / x_columns),
                          .rows = read_rows(args.read, args.dy.size(2)),
                          .partials = args.scratch.as<float>()};
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>) launch_kernels<T>(args, p, launch);
  });
}

}  // namespace longstride::kernels::cuda::sm90
