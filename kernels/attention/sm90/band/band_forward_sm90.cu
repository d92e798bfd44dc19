#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/attention/sm90/attention_sm90.h"
#include "kernels/attention/sm90/band/band_forward_kernel.cuh"
#include "kernels/attention/sm90/band/band_plan.h"
#include "kernels/base/cuda_types.cuh"
#include "kernels/base/gpu_kind.h"

namespace longstride::kernels::cuda::sm90 {
namespace {

// As many stages as there is room for, up to three tiles loaded ahead.
template <class B>
std::int32_t choose_stages(std::int32_t reach) {
  std::int32_t stages = B::needed_stages(reach) + 3;
  while (B::shared_bytes(stages) > shared_of_block) --stages;
  return stages;
}

template <class T, int KeySize, int ValueSize, bool Shares, int Reach>
void launch_band(const AttentionArgs& args, const BandPlan& band, const Launch& launch) {
  using B = BandForward<T, KeySize, ValueSize, Shares, Reach>;
  static_assert(B::shared_bytes(B::needed_stages(Reach)) <= shared_of_block, "the widest band has room");
  BandForwardProblem problem = {};
  const auto maps = [&](const Tensor& view, int rows, int columns) {
    return row_maps(view, band.set, band.n, rows, columns);
  };
  problem.q = maps(args.q, B::rows, KeySize);
  problem.k = maps(args.k, B::rows, KeySize);
  problem.v = maps(args.v, B::rows, ValueSize);
  problem.o = maps(args.o, B::warp_rows, ValueSize);
  problem.set = band.set;
  problem.limit = BandLimit(band.shape);
  problem.n = band.n;
  problem.classes = band.classes;
  problem.rate = static_cast<float>(args.scale) * log2_e;
  problem.lse = args.lse.as<float>();
  problem.sink = args.sink.as<const float>();
  problem.bounds = BoundsView(args.bounds);
  problem.stages = choose_stages<B>(band.reach);
  const std::int64_t batch = args.q.size(0), at_once = std::int64_t{B::tasks} * multiprocessors();
  const BandShares of_runs = choose_run(band, batch, at_once), of_chains = choose_chain(band, batch, at_once);
  const BandShares& shares = of_chains.cost <= of_runs.cost ? of_chains : of_runs;
  problem.run = shares.run;
  problem.chain = shares.chain;
  const std::int32_t chains = tiles_in(band.classes, shares.chain),
                     runs = tiles_in(tiles_in(band.set.length, band_rows), shares.run);
  problem.by_heads = Divisor(band.heads);
  problem.heads_per_key = Divisor(static_cast<std::int32_t>(args.q.size(2) / args.k.size(2)));
  problem.by_chains = Divisor(chains);
  problem.by_period = Divisor(band.set.period);
  auto* const kernel = forward_band<T, KeySize, ValueSize, Shares, Reach>;
  const std::size_t bytes = B::shared_bytes(problem.stages);
  allow_shared(kernel, bytes);
  const std::int64_t tasks = std::int64_t{band.heads} * chains * runs;
  cuda::run(
      "attention_band_sm90", kernel,
      {{static_cast<unsigned>((tasks + B::tasks - 1) / B::tasks), static_cast<unsigned>(batch)}, B::threads, bytes},
      launch, problem);
}

}  // namespace

// A size between those of two kernels uses the larger: TMA fills the columns beyond with zeros and does not write them.
void attention_band(const AttentionArgs& args, const BandPlan& band, const Launch& launch) {
  with_gpu_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>) {
      if (args.q.size(3) > 64)
        launch_band<T, 128, 128, true, most_large_reach>(args, band, launch);
      else if (args.v.size(3) > 64)
        launch_band<T, 64, 128, true, most_large_reach>(args, band, launch);
      else if (band.reach > most_reach)
        launch_band<T, 64, 64, true, most_shared_reach>(args, band, launch);
      else if (args.q.size(3) > 32 || args.v.size(3) > 32)
        launch_band<T, 64, 64, true, most_reach>(args, band, launch);
      else
        launch_band<T, 32, 32, false, most_reach>(args, band, launch);
    }
  });
}

}  // namespace longstride::kernels::cuda::sm90
