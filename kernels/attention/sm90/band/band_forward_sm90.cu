#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/attention/sm90/band/band.h"
#include "kernels/attention/sm90/band/band_forward_kernel.cuh"
#include "kernels/attention/sm90/band/band_plan.h"
#include "kernels/base/cuda_types.cuh"
#include "kernels/base/gpu_kind.h"

namespace longstride::kernels::cuda::sm90 {
namespace {

// Divides a multiprocessor: first as many blocks as possible, then stages to load ahead.
template <class B>
int choose_stages(std::int32_t reach, std::int32_t& stages) {
  static_assert(B::shared_bytes(most_reach + 1) <= shared_of_block, "the widest band has room");
  int most = 0;
  for (std::int32_t more = 3; more >= 1; --more) {
    const auto bytes = static_cast<int>(B::shared_bytes(reach + more));
    const int blocks = std::min(shared_of_multiprocessor / (bytes + shared_reserved), B::blocks);
    if (bytes > shared_of_block || blocks <= most) continue;
    most = blocks;
    stages = reach + more;
  }
  return most;
}

template <class T, int KeySize, int ValueSize, int Groups, int Blocks>
void launch_band(const AttentionArgs& args, const BandPlan& band, const Launch& launch) {
  using B = BandForward<T, KeySize, ValueSize, Groups, Blocks>;
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
  problem.segments = band.segments;
  problem.rate = static_cast<float>(args.scale) * log2_e;
  problem.lse = args.lse.as<float>();
  const int blocks = choose_stages<B>(band.reach, problem.stages);
  const std::int64_t batch = args.q.size(0), at_once = std::int64_t{blocks} * Groups * multiprocessors();
  const BandShares of_runs = choose_run(band, batch, at_once), of_chains = choose_chain(band, batch, at_once);
  const BandShares& shares = of_chains.cost <= of_runs.cost ? of_chains : of_runs;
  problem.run = shares.run;
  problem.chain = shares.chain;
  const std::int32_t chains = tiles_in(band.segments, shares.chain),
                     runs = tiles_in(tiles_in(band.set.length, band_rows), shares.run);
  problem.by_heads = Divisor(band.heads);
  problem.by_chains = Divisor(chains);
  problem.by_period = Divisor(band.set.period);
  auto* const kernel = forward_band<T, KeySize, ValueSize, Groups, Blocks>;
  const std::size_t bytes = B::shared_bytes(problem.stages);
  allow_shared(kernel, bytes);
  const std::int64_t groups = std::int64_t{band.heads} * chains * runs;
  cuda::run("attention_band_sm90", kernel,
            {{static_cast<unsigned>((groups + Groups - 1) / Groups), static_cast<unsigned>(batch)}, B::threads, bytes},
            launch, problem);
}

}  // namespace

// A size between those of two kernels uses the larger: TMA fills the columns beyond with zeros and does not write them.
void attention_band(const AttentionArgs& args, const Launch& launch) {
  BandPlan band;
  find_band(*args.plan, band);
  with_gpu_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>)
      args.q.size(3) <= 32 && args.v.size(3) <= 32 ? launch_band<T, 32, 32, 3, 1>(args, band, launch)
                                                   : launch_band<T, 64, 64, 1, 2>(args, band, launch);
  });
}

}  // namespace longstride::kernels::cuda::sm90
