#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/attention/sm90/band.h"
#include "kernels/attention/sm90/band_lean_kernel.cuh"
#include "kernels/attention/sm90/geometry.h"
#include "kernels/attention/tile_span.h"
#include "kernels/base/cuda_launch.cuh"

namespace longstride::kernels::cuda::sm90 {
namespace {

constexpr int shared_of_block = 227 * 1024, shared_of_multiprocessor = 228 * 1024, reserved = 1024;

// The stream and who sees whom, of a plan whose heads all have one part, of keys that are the queries' stream.
bool find_band(const AttentionPlan& plan, LeanBandProblem& problem) {
  Geometry geometry;
  if (passes_in(plan) != 1 || !geometry_of(plan, 0, geometry) || geometry.passes != 1) return false;
  const PassGeometry& pass = geometry.pass[0];
  const Part& part = pass.part[0];
  if (pass.parts != 1 || !(part.keys == pass.queries) || !(part.high == Limit{})) return false;
  const bool natural = part.keys.run >= part.keys.period;
  if (part.low.block > 0 && (!natural || part.low.back != 0)) return false;
  problem.stream = part.keys;
  problem.segments = pass.segments;
  problem.n = plan.n;
  problem.heads = geometry.heads;
  problem.shape.block = part.low.block;
  problem.shape.window = std::min(part.low.back / (natural ? 1 : part.keys.period) + 1, part.keys.length);
  return true;
}

std::int32_t reach_of(const BandShape& shape, std::int32_t length) {
  const std::int32_t tiles = tiles_in(length, band_rows);
  if (shape.block <= 0) return std::min((shape.window + 2 * band_rows - 2) / band_rows, tiles);
  const bool whole = shape.block % band_rows == 0;
  return std::min(tiles_in(shape.block, band_rows) + (whole ? 0 : 1), tiles);
}

// How many blocks fit on a multiprocessor, and with how much room each: first blocks, then room to load ahead.
template <class B>
int choose_room(LeanBandProblem& problem) {
  struct Room {
    std::int32_t more_slots, key_stages, ds_stages;
  };
  constexpr Room rooms[] = {{1, 2, 2}, {0, 2, 2}, {0, 2, 1}, {1, 1, 1}, {0, 1, 1}};
  const std::int32_t tiles = tiles_in(problem.stream.length, band_rows) * std::min(problem.segments, 8);
  const std::int32_t least = std::min(std::max(problem.reach, 2), tiles);  // one slot would wait for itself
  LeanBandProblem tried = problem;
  int most = 0;
  for (const Room& room : rooms) {
    tried.slots = std::min(least + room.more_slots, tiles);
    tried.key_stages = std::min(room.key_stages, tiles);
    tried.ds_stages = room.ds_stages;
    const auto bytes = static_cast<int>(B::shared_bytes(tried));
    const int blocks = std::min(shared_of_multiprocessor / (bytes + reserved), B::blocks);
    if (bytes > shared_of_block || blocks <= most) continue;
    most = blocks;
    problem = tried;
  }
  return most;
}

int multiprocessors() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  return count;
}

// Tiles of a run: few, to fill the GPU evenly, and many, to repeat little of what runs share.
std::int32_t choose_run(const LeanBandProblem& problem, std::int64_t batch, std::int64_t at_once, double& least) {
  const std::int32_t tiles = tiles_in(problem.stream.length, band_rows);
  std::int32_t best = 1;
  least = 0;
  for (std::int32_t runs = tiles; runs >= 1; runs = runs > 64 ? runs - runs / 64 : runs - 1) {
    const std::int32_t run = (tiles + runs - 1) / runs;
    const std::int64_t blocks = batch * problem.heads * problem.segments * tiles_in(tiles, run);
    const std::int64_t waves = (blocks + at_once - 1) / at_once;
    const double cost =
        static_cast<double>(waves) * (run + 1 + 0.5 * (tiles_in(tiles, run) > 1 ? problem.reach - 1 : 0));
    if (least == 0 || cost < least) {
      least = cost;
      best = run;
    }
  }
  return best;
}

// Segments one after the other, where they are short.
std::int32_t choose_chain(const LeanBandProblem& problem, std::int64_t batch, std::int64_t at_once, double& least) {
  const std::int32_t tiles = tiles_in(problem.stream.length, band_rows);
  std::int32_t best = 1;
  least = 0;
  for (std::int32_t chain = 1; chain <= std::min(problem.segments, 256); ++chain) {
    const std::int64_t blocks = batch * problem.heads * tiles_in(problem.segments, chain);
    const std::int64_t waves = (blocks + at_once - 1) / at_once;
    const double cost = static_cast<double>(waves) * (static_cast<double>(chain) * tiles + 1);
    if (least == 0 || cost < least) {
      least = cost;
      best = chain;
    }
  }
  return best;
}

Gradient rows_of(const View& view) {
  return {view.data, {view.stride[0], view.stride[1], view.stride[2]}, static_cast<std::int32_t>(view.size[3])};
}

template <class T, int KeySize, int ValueSize, int Blocks>
void launch_band(const AttentionBackwardArgs& args, LeanBandProblem& problem, const Launch& launch) {
  using B = LeanBand<T, KeySize, ValueSize, Blocks>;
  const auto maps = [&](const View& view, int columns) {
    return stream_maps(view, problem.stream, problem.n, band_rows, columns);
  };
  problem.q = maps(args.q, KeySize);
  problem.k = maps(args.k, KeySize);
  problem.v = maps(args.v, ValueSize);
  problem.o = maps(args.o, ValueSize);
  problem.dout = maps(args.dout, ValueSize);
  problem.scale = static_cast<float>(args.scale);
  problem.lse = args.lse.as<float>();
  problem.output = rows_of(args.o);
  problem.dq = rows_of(args.dq);
  problem.dk = rows_of(args.dk);
  problem.dv = rows_of(args.dv);
  const auto rows_of_warps = [&](const View& view, int columns) {
    return stream_maps(view, problem.stream, problem.n, 16, columns);
  };
  problem.dq_maps = rows_of_warps(args.dq, KeySize);
  problem.dk_maps = rows_of_warps(args.dk, KeySize);
  problem.dv_maps = rows_of_warps(args.dv, ValueSize);
  const int blocks = choose_room<B>(problem);
  const std::int64_t at_once = std::int64_t{blocks} * multiprocessors();
  const std::int32_t tiles = tiles_in(problem.stream.length, band_rows);
  double of_runs = 0, of_chains = 0;
  problem.run = choose_run(problem, args.q.size[0], at_once, of_runs);
  problem.chain = choose_chain(problem, args.q.size[0], at_once, of_chains);
  if (problem.chain > 1 && of_chains < of_runs)
    problem.run = tiles;
  else
    problem.chain = 1;
  const std::int32_t runs = tiles_in(tiles, problem.run), chains = tiles_in(problem.segments, problem.chain);
  problem.by_heads = Divisor(problem.heads);
  problem.by_chains = Divisor(chains);
  problem.by_period = Divisor(problem.stream.period);
  problem.by_tiles = Divisor(problem.chain > 1 ? tiles : 1 << 30);
  auto* const kernel = backward_band_lean<T, KeySize, ValueSize, Blocks>;
  const std::size_t bytes = B::shared_bytes(problem);
  allow_shared(kernel, bytes);
  const auto of_sequence = static_cast<unsigned>(std::int64_t{problem.heads} * chains * runs);
  run("attention_backward_band_lean_sm90", kernel,
      {{of_sequence, static_cast<unsigned>(args.q.size[0])}, B::threads, bytes}, launch, problem);
}

template <int KeySize, int ValueSize, int Blocks>
struct BandSizes {
  static constexpr int key = KeySize, value = ValueSize, blocks = Blocks;
};

// Calls f with the kernel for these sizes; a size between two kernels' takes the larger: TMA fills the columns beyond
// with zeros. Small heads have a kernel of fewer registers, for where there is room for three blocks.
template <class F>
void with_band_sizes(const AttentionBackwardArgs& args, LeanBandProblem problem, F&& f) {
  const std::int64_t key_size = args.q.size[3], value_size = args.v.size[3];
  if (key_size <= 32 && value_size <= 32) {
    if (choose_room<LeanBand<__half, 32, 32, 3>>(problem) == 3)
      f(BandSizes<32, 32, 3>{});
    else
      f(BandSizes<32, 32, 2>{});
  } else if (key_size <= 64 && value_size <= 64) {
    f(BandSizes<64, 64, 2>{});
  } else if (key_size <= 64) {
    f(BandSizes<64, 128, 2>{});
  }
}

}  // namespace

void attention_backward_band_lean(const AttentionBackwardArgs& args, const Launch& launch) {
  LeanBandProblem problem = {};
  find_band(*args.plan, problem);
  problem.reach = reach_of(problem.shape, problem.stream.length);
  with_gpu_type(args.q.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>)
      with_band_sizes(args, problem, [&](auto sizes) {
        using Sizes = decltype(sizes);
        launch_band<T, Sizes::key, Sizes::value, Sizes::blocks>(args, problem, launch);
      });
  });
}

}  // namespace longstride::kernels::cuda::sm90
