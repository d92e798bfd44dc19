// The weight of all 256 classes is in shared memory, and tiles of 64 rows of the hidden states stream past it. Two
// warpgroups take turns: while one multiplies, the other has a tile's logits in its registers, 128 per thread, and
// turns them into losses and gradients. Memory sees the hidden states once, and the gradients once.
#include <cfloat>

#include "kernels/base/approximate.cuh"
#include "kernels/base/cuda_types.cuh"
#include "kernels/base/ids.h"
#include "kernels/gemm/panel_division.h"
#include "kernels/gpu/tensor_map.h"
#include "kernels/logits_loss/logits_loss_sm90.h"

namespace longstride::kernels::cuda::sm90 {
namespace {

using panels::box_bytes, panels::box_rows, panels::half, panels::stage_bytes, panels::tile_rows;

constexpr int classes = 256, most_steps = 4;  // steps of 64 in depth
constexpr int warpgroups = 2, warps = 4 * warpgroups, threads = 128 * (warpgroups + 1);
constexpr int producer_registers = 40, consumer_registers = 232;
constexpr int stages = 6, boxes_of_warp = 2;
constexpr int step_bytes = classes * half * 2;
constexpr int a_at = most_steps * step_bytes, boxes_at = a_at + stages * stage_bytes,
              control_at = boxes_at + warps * boxes_of_warp * box_bytes;

struct Control {
  std::uint64_t weight, full[stages], empty[stages];
};
constexpr std::size_t shared_bytes = control_at + sizeof(Control) + 1024;

struct LogitsLossProblem {
  CUtensorMap hidden, weight, gradient;  // boxes of hidden and weight: 64 x 64; of the gradient: 16 x 64
  std::int32_t rows, tiles, steps;
  bool has_gradient;
  Ids targets;
  const float* weights;  // null: 1
  float* losses;
  double scale;
  const float* loss_scale;
};

__device__ void produce(const LogitsLossProblem& p, char* shared, Control& control) {
  barrier_arrive_expect(&control.weight, static_cast<std::uint32_t>(p.steps) * step_bytes);
  for (int k = 0; k < p.steps; ++k)
    for (int i = 0; i < classes / half; ++i)
      tma_load(shared + k * step_bytes + i * half * half * 2, &p.weight, matrix_coordinates(k * half, i * half),
               &control.weight);
  RingSlot slot{0, 1};  // slot of "empty", whose first phases need no wait
  for (std::int32_t t = static_cast<std::int32_t>(blockIdx.x); t < p.tiles; t += static_cast<std::int32_t>(gridDim.x))
    for (int k = 0; k < p.steps; ++k) {
      barrier_wait(&control.empty[slot.index], slot.parity);
      barrier_arrive_expect(&control.full[slot.index], stage_bytes);
      tma_load(shared + a_at + slot.index * stage_bytes, &p.hidden, matrix_coordinates(k * half, t * tile_rows),
               &control.full[slot.index]);
      slot.advance(stages);
    }
}

__device__ void release(Control& control, int stage) {
  if (threadIdx.x % 32 == 0) barrier_arrive(&control.empty[stage]);  // this warp has read it
}

// The logits of a tile: d[c] has the classes from 128 c on. `before`: the block's tiles before this one.
template <class T>
__device__ void multiply(const std::int32_t& steps, char* shared, Control& control, int warpgroup, int before,
                         float (&d)[2][64]) {
  RingSlot slot{before * steps % stages, static_cast<std::uint32_t>(before * steps / stages) & 1};
  int last = 0;
  const std::uint64_t a = descriptor<128>(shared + a_at);
  std::uint64_t b = descriptor<128>(shared);
  named_barrier_sync(4 + warpgroup, 256);
  for (int k = 0; k < steps; ++k) {
    const std::uint64_t a_stage = advanced(a, static_cast<std::uint32_t>(slot.index * stage_bytes));
    barrier_wait(&control.full[slot.index], slot.parity);
#pragma unroll
    for (int c = 0; c < 2; ++c) wgmma_hold(d[c]);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step)
#pragma unroll
      for (int c = 0; c < 2; ++c)
        wgmma<T, 128, false>(d[c], advanced(a_stage, step * 32), advanced(b, c * step_bytes / 2 + step * 32),
                             k > 0 || step > 0);
    wgmma_commit();
    b = advanced(b, step_bytes);
    if (k > 0) {
      wgmma_wait<1>();
      release(control, last);
    }
    last = slot.index;
    slot.advance(stages);
  }
  named_barrier_arrive(4 + (warpgroup + 1) % warpgroups, 256);
  wgmma_wait<0>();
#pragma unroll
  for (int c = 0; c < 2; ++c) wgmma_hold(d[c]);
  release(control, last);
}

// A thread's two rows, r = 0 and 1.
struct Rows {
  std::int32_t row[2];
  int target[2];  // less the thread's first class
  float weight[2];
};
__device__ Rows rows_of(const LogitsLossProblem& p, std::int32_t tile, int warp) {
  Rows rows;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const std::int32_t row = tile * tile_rows + warp % 4 * box_rows + this_lane() / 4 + 8 * r;
    const bool is_inside = row < p.rows;
    rows.row[r] = row;
    rows.target[r] = is_inside ? p.targets[row] - 2 * (this_lane() % 4) : -1;
    rows.weight[r] = is_inside && p.weights != nullptr ? p.weights[row] : 1.0f;
  }
  return rows;
}

template <class F>
__device__ __forceinline__ void for_each_logit(float (&d)[2][64], F&& f) {
#pragma unroll
  for (int c = 0; c < 2; ++c)
#pragma unroll
    for (int j = 0; j < 16; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int e = 0; e < 2; ++e) f(d[c][element_at(j, r, e)], 128 * c + 8 * j + e, r);
}
__device__ float of_quad(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// Replaces logits by their exponentials, relative to the largest of a row, and returns the sums of these. The shift is
// rounded, so its rounding error is taken out of the logarithm again.
__device__ void losses_of(const LogitsLossProblem& p, const Rows& rows, float (&d)[2][64], float (&sum)[2]) {
  float top[2] = {-FLT_MAX, -FLT_MAX}, at_target[2] = {}, shift[2];
  for_each_logit(d, [&](float& x, int column, int r) {
    top[r] = fmaxf(top[r], x);
    if (column == rows.target[r]) at_target[r] = x;
  });
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 1));
    top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 2));
    shift[r] = top[r] * log2_e;
    sum[r] = 0;
  }
  for_each_logit(d, [&](float& x, int, int r) {
    x = exp2_approx(fmaf(x, log2_e, -shift[r]));
    sum[r] += x;
  });
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] = of_quad(sum[r]);
    at_target[r] = of_quad(at_target[r]);
    const float log_sum = (log2f(sum[r]) - fmaf(top[r], log2_e, -shift[r])) * ln_2;
    if (this_lane() % 4 == 0 && rows.row[r] < p.rows)
      p.losses[rows.row[r]] = rows.weight[r] * (log_sum + (top[r] - at_target[r]));
  }
}

// Stores scale (softmax - onehot) box by box of 64 classes, two boxes at a time.
template <class T>
__device__ void store_gradient(const LogitsLossProblem& p, const Rows& rows, std::int32_t tile, int warp, char* boxes,
                               const float (&d)[2][64], const float (&sum)[2]) {
  using P = panels::Panel<T, false, most_steps>;
  const float scale =
      static_cast<float>(p.loss_scale != nullptr ? p.scale * static_cast<double>(*p.loss_scale) : p.scale);
  float of_row[2], factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    of_row[r] = rows.weight[r] * scale;
    factor[r] = of_row[r] / sum[r];
  }
#pragma unroll
  for (int q = 0; q < classes / half; ++q) {
    std::uint32_t packed[16];
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float two[2];
#pragma unroll
        for (int e = 0; e < 2; ++e)
          two[e] = d[q / 2][element_at(q % 2 * 8 + j, r, e)] * factor[r] -
                   (64 * q + 8 * j + e == rows.target[r] ? of_row[r] : 0.0f);
        packed[2 * j + r] = pack<T>(two[0], two[1]);
      }
    if (q % boxes_of_warp == 0) P::empty_boxes(packed);
    P::fill_box(boxes + q % boxes_of_warp * box_bytes, packed);
    if (q % boxes_of_warp != boxes_of_warp - 1) continue;
    proxy_fence();
    __syncwarp();
    if (this_lane() != 0) continue;
#pragma unroll
    for (int i = 0; i < boxes_of_warp; ++i)
      tma_store(&p.gradient,
                matrix_coordinates((q + 1 - boxes_of_warp + i) * half, tile * tile_rows + warp % 4 * box_rows),
                boxes + i * box_bytes);
    store_commit();
  }
}

template <class T>
__global__ void __launch_bounds__(threads, 1) logits_loss_kernel(const __grid_constant__ LogitsLossProblem p) {
  extern __shared__ char memory[];
  char* const shared = memory + bytes_to_tile(memory);
  auto& control = *reinterpret_cast<Control*>(shared + control_at);
  if (threadIdx.x == 0) {
    barrier_init(&control.weight, 1);
    for (int i = 0; i < stages; ++i) {
      barrier_init(&control.full[i], 1);
      barrier_init(&control.empty[i], 4);
    }
    barrier_init_fence();
    proxy_fence();
  }
  __syncthreads();
  if (threadIdx.x >= warpgroups * 128) {
    registers_give<producer_registers>();
    if (threadIdx.x == warpgroups * 128) produce(p, shared, control);
    return;
  }
  registers_take<consumer_registers>();
  const int warp = uniform(this_warp()), warpgroup = warp / 4;
  char* const boxes = shared + boxes_at + warp * boxes_of_warp * box_bytes;
  barrier_wait(&control.weight, 0);
  if (warpgroup == warpgroups - 1) named_barrier_arrive(4, 256);  // the first turn is warpgroup 0's
  const auto blocks = static_cast<std::int32_t>(gridDim.x);
  int before = warpgroup;
  for (std::int32_t t = static_cast<std::int32_t>(blockIdx.x) + warpgroup * blocks; t < p.tiles;
       t += warpgroups * blocks, before += warpgroups) {
    float d[2][64], sum[2];
    const Rows rows = rows_of(p, t, warp);
    multiply<T>(p.steps, shared, control, warpgroup, before, d);
    losses_of(p, rows, d, sum);
    if (p.has_gradient) store_gradient<T>(p, rows, t, warp, boxes, d, sum);
  }
  if (this_lane() == 0) store_wait<0>();
}

std::int64_t tiles_of(const LogitsLossArgs& args) { return (args.hidden.size(0) + tile_rows - 1) / tile_rows; }

}  // namespace

bool supports_logits_loss(const LogitsLossArgs& args) {
  const Dtype dtype = args.hidden.dtype();
  if (args.bias.given() || args.right.given() || dtype == Dtype::f32 || args.weight.dtype() != dtype ||
      args.weight.size(0) != classes || args.hidden.size(1) > most_steps * half ||
      args.hidden.size(0) >= panels::most_rows)
    return false;
  if (!panels::is_mappable(args.hidden) || !panels::is_mappable(args.weight)) return false;
  if (args.gradient.given() && (args.gradient.dtype() != dtype || !panels::is_mappable(args.gradient))) return false;
  return is_hopper() && tiles_of(args) >= multiprocessors();
}

void logits_loss(const LogitsLossArgs& args, const Launch& launch) {
  LogitsLossProblem p = {};
  p.hidden = matrix_map(args.hidden, tile_rows);
  p.weight = matrix_map(args.weight, half);
  p.has_gradient = args.gradient.given();
  if (p.has_gradient) p.gradient = matrix_map(args.gradient, box_rows);
  p.rows = static_cast<std::int32_t>(args.hidden.size(0));
  p.tiles = static_cast<std::int32_t>(tiles_of(args));
  p.steps = static_cast<std::int32_t>(args.hidden.size(1) / half);
  p.targets = ids_of(args.targets);
  p.weights = args.weights.as<const float>();
  p.losses = args.losses.as<float>();
  p.scale = args.scale;
  p.loss_scale = args.loss_scale;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(multiprocessors(), (p.tiles + 1) / warpgroups));
  with_gpu_type(args.hidden.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>) {
      const auto kernel = logits_loss_kernel<T>;
      allow_shared(kernel, shared_bytes);
      run("logits_loss_sm90", kernel, {blocks, threads, shared_bytes}, launch, p);
    }
  });
}

}  // namespace longstride::kernels::cuda::sm90
