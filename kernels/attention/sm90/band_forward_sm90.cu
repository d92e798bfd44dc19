#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "kernels/attention/sm90/band_forward.h"
#include "kernels/attention/sm90/band_forward_kernel.cuh"
#include "kernels/attention/sm90/band_plan.h"
#include "kernels/base/cuda_types.cuh"

namespace longstride::kernels::cuda::sm90 {
namespace {

constexpr int shared_of_block = 227 * 1024, shared_of_multiprocessor = 228 * 1024, reserved = 1024;
// A query tile's key tiles are all in shared memory at once.
constexpr std::int32_t most_reach = 5;

// How many blocks fit on a multiprocessor, and with how many stages each: first blocks, then room to load ahead.
template <class B>
int choose_stages(std::int32_t reach, std::int32_t& stages) {
  int most = 0;
  for (std::int32_t more = 3; more >= 1; --more) {
    const auto bytes = static_cast<int>(B::shared_bytes(reach + more));
    const int blocks = std::min(shared_of_multiprocessor / (bytes + reserved), B::blocks);
    if (bytes > shared_of_block || blocks <= most) continue;
    most = blocks;
    stages = reach + more;
  }
  return most;
}

template <class T, int KeySize, int ValueSize, int AtOnce, int Groups, int Blocks>
void launch_band(const AttentionArgs& args, const BandPlan& band, const Launch& launch) {
  using B = BandForward<T, KeySize, ValueSize, AtOnce, Groups, Blocks>;
  BandForwardProblem problem = {};
  const auto maps = [&](const View& view, int rows, int columns) {
    return stream_maps(view, band.stream, band.n, rows, columns);
  };
  problem.q = maps(args.q, B::rows, KeySize);
  problem.k = maps(args.k, B::rows, KeySize);
  problem.v = maps(args.v, B::rows, ValueSize);
  problem.o = maps(args.o, B::warp_rows, ValueSize);
  problem.stream = band.stream;
  problem.limit = BandLimit(band.shape);
  problem.n = band.n;
  problem.segments = band.segments;
  problem.rate = static_cast<float>(args.scale) * B::log2_e;
  problem.lse = args.lse.as<float>();
  const int blocks = choose_stages<B>(band.reach, problem.stages);
  if (blocks == 0) throw std::runtime_error("attention_band: no room in shared memory");
  const std::int64_t batch = args.q.size[0], at_once = std::int64_t{blocks} * Groups * multiprocessors();
  const std::int32_t tiles = tiles_in(band.stream.length, band_rows);
  double of_runs = 0, of_chains = 0;
  problem.run = choose_run(band, batch, at_once, of_runs);
  problem.chain = choose_chain(band, batch, at_once, of_chains);
  if (of_chains <= of_runs)
    problem.run = tiles;
  else
    problem.chain = 1;
  const std::int32_t chains = tiles_in(band.segments, problem.chain), runs = tiles_in(tiles, problem.run);
  problem.by_heads = Divisor(band.heads);
  problem.by_chains = Divisor(chains);
  problem.by_period = Divisor(band.stream.period);
  auto* const kernel = forward_band<T, KeySize, ValueSize, AtOnce, Groups, Blocks>;
  const std::size_t bytes = B::shared_bytes(problem.stages);
  allow_shared(kernel, bytes);
  const std::int64_t groups = std::int64_t{band.heads} * chains * runs;
  cuda::run("attention_band_sm90", kernel,
            {{static_cast<unsigned>((groups + Groups - 1) / Groups), static_cast<unsigned>(batch)}, B::threads, bytes},
            launch, problem);
}

template <class T>
void launch_band(const AttentionArgs& args, const BandPlan& band, BandForwardWay way, const Launch& launch) {
  // A size between two kernels' takes the larger: TMA fills the columns beyond with zeros and does not write them.
  const std::int64_t key_size = args.q.size[3], value_size = args.v.size[3];
  if (key_size <= 32 && value_size <= 32) {
    if (way == BandForwardWay::three_blocks) return launch_band<T, 32, 32, 3, 1, 3>(args, band, launch);
    if (way == BandForwardWay::four_blocks) return launch_band<T, 32, 32, 2, 1, 4>(args, band, launch);
    return launch_band<T, 32, 32, 3, 3, 1>(args, band, launch);
  }
  if (key_size <= 64 && value_size <= 64) return launch_band<T, 64, 64, 3, 1, 2>(args, band, launch);
  return launch_band<T, 64, 128, 3, 1, 2>(args, band, launch);
}

}  // namespace

bool is_band(const AttentionArgs& args) {
  BandPlan band;
  return find_band(*args.plan, band) && band.reach <= most_reach && args.q.size[3] <= 64;
}

void attention_band(const AttentionArgs& args, BandForwardWay way, const Launch& launch) {
  BandPlan band;
  if (!find_band(*args.plan, band) || band.reach > most_reach)
    throw std::invalid_argument("attention_band: the plan is no band");
  with_gpu_type(args.q.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>) launch_band<T>(args, band, way, launch);
  });
}

}  // namespace longstride::kernels::cuda::sm90
