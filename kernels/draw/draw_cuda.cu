#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/ids.h"
#include "kernels/draw/draw.cuh"
#include "kernels/draw/draw_wide.cuh"

namespace longstride::kernels::cuda {
namespace {

constexpr int warps = 8;

struct LogitRows {
  const float* logits;
  std::uint8_t* bytes;
  float* log_probabilities;
  std::uint8_t* previous;
  std::int64_t batch, length, prompted, first_sequence, position;
  const std::int64_t* position_at;
  int vocabulary;
  Sampling sampling;
};

__global__ void __launch_bounds__(32 * warps) draw_rows(const LogitRows p) {
  const std::int64_t s = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / 32;
  if (s >= p.batch) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t position = p.position_at != nullptr ? *p.position_at : p.position;
  float x[Draw::each];
#pragma unroll
  for (int k = 0; k < Draw::each; ++k) {
    const int v = lane * Draw::each + k;
    x[k] = v < p.vocabulary ? p.logits[s * p.vocabulary + v] : -INFINITY;
  }
  std::uint8_t* byte = p.bytes + s * p.length + position;
  const int given = position < p.prompted ? *byte : -1;
  const Draw drawn = draw_by_warp(x, p.sampling, uniform_for(p.sampling, p.first_sequence + s, position), given,
                                  p.log_probabilities != nullptr);
  if (lane != 0) return;
  *byte = static_cast<std::uint8_t>(drawn.byte);
  p.previous[s] = static_cast<std::uint8_t>(drawn.byte);
  if (p.log_probabilities != nullptr) p.log_probabilities[s * p.length + position] = drawn.log_probability;
}

// A block per row.
__global__ void __launch_bounds__(WideDraw::threads)
    draw_wide_rows(const LogitRows p, std::uint16_t* ids, std::uint16_t* previous) {
  const std::int64_t s = blockIdx.x;
  const std::int64_t position = p.position_at != nullptr ? *p.position_at : p.position;
  std::uint16_t* id = ids + s * p.length + position;
  const int given = position < p.prompted ? *id : -1;
  const Draw drawn = draw_by_block({p.logits + s * p.vocabulary, p.vocabulary}, p.sampling,
                                   uniform_for(p.sampling, p.first_sequence + s, position), given);
  if (threadIdx.x != 0) return;
  *id = static_cast<std::uint16_t>(drawn.byte);
  previous[s] = static_cast<std::uint16_t>(drawn.byte);
  if (p.log_probabilities != nullptr) p.log_probabilities[s * p.length + position] = drawn.log_probability;
}

__global__ void advance(std::int64_t* position) { ++*position; }

}  // namespace

void draw(const DrawArgs& args, const Launch& launch) {
  const bool wide = args.bytes.dtype() == Dtype::u16;
  const LogitRows p{args.logits.as<const float>(),
                    wide ? nullptr : args.bytes.as<std::uint8_t>(),
                    args.log_probabilities.as<float>(),
                    wide ? nullptr : args.previous.as<std::uint8_t>(),
                    args.logits.size(0),
                    args.bytes.size(1),
                    args.prompted,
                    args.first_sequence,
                    args.position,
                    args.position_at,
                    static_cast<int>(args.logits.size(1)),
                    args.sampling};
  if (wide)
    run("draw_wide", draw_wide_rows, {static_cast<unsigned>(p.batch), WideDraw::threads}, launch, p,
        args.bytes.as<std::uint16_t>(), args.previous.as<std::uint16_t>());
  else
    run("draw", draw_rows, {blocks_for(p.batch, warps), 32 * warps}, launch, p);
  if (args.position_at != nullptr) run("advance", advance, {1, 1}, launch, args.position_at);
}

}  // namespace longstride::kernels::cuda
