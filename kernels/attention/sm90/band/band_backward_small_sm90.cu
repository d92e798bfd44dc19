#include <cstdint>
#include <type_traits>

#include "kernels/attention/sm90/attention_sm90.h"
#include "kernels/attention/sm90/band/band_backward_launch.cuh"
#include "kernels/attention/sm90/band/band_backward_small_kernel.cuh"
#include "kernels/base/gpu_kind.h"

namespace longstride::kernels::cuda::sm90 {
namespace {

template <class T>
void launch_band(const AttentionBackwardArgs& args, const BandPlan& band, const Launch& launch) {
  using Block = BandBackwardSmallBlock<T>;
  static_assert(Block::shared_bytes(most_reach) <= shared_of_block, "the widest band has room");
  BandBackwardSmallProblem problem = {};
  fill_problem(args, band, small_head, small_head, problem);
  const auto rows_of_warps = [&](const Tensor& view) { return row_maps(view, band.set, band.n, 16, small_head); };
  problem.dq_maps = rows_of_warps(args.dq);
  problem.dk_maps = rows_of_warps(args.dk);
  problem.dv_maps = rows_of_warps(args.dv);
  const std::int64_t batch = args.q.size(0), at_once = multiprocessors();
  const BandShares of_runs = choose_run(band, batch, at_once), of_chains = choose_chain(band, batch, at_once);
  const BandShares& shares = of_chains.chain > 1 && of_chains.cost < of_runs.cost ? of_chains : of_runs;
  problem.run = shares.run;
  problem.chain = shares.chain;
  const std::int32_t tiles = tiles_in(band.set.length, band_rows);
  const std::int32_t runs = tiles_in(tiles, shares.run), chains = tiles_in(band.classes, shares.chain);
  problem.by_heads = Divisor(band.heads);
  problem.by_chains = Divisor(chains);
  problem.by_period = Divisor(band.set.period);
  problem.by_tiles = Divisor(shares.chain > 1 ? tiles : 1 << 30);
  auto* const kernel = backward_band_small<T>;
  const std::size_t bytes = Block::shared_bytes(band.reach);
  allow_shared(kernel, bytes);
  const std::int64_t of_sequence = std::int64_t{band.heads} * chains * runs;
  run("attention_backward_band_sm90", kernel,
      {{static_cast<unsigned>(of_sequence), static_cast<unsigned>(batch)}, Block::block_threads, bytes}, launch,
      problem);
}

}  // namespace

// For heads smaller than small_head TMA fills the columns beyond with zeros.
void attention_backward_band_small(const AttentionBackwardArgs& args, const BandPlan& band, const Launch& launch) {
  with_gpu_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>) launch_band<T>(args, band, launch);
  });
}

}  // namespace longstride::kernels::cuda::sm90
