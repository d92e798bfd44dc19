#include <cfloat>

#include "kernels/bands/bands.h"
#include "kernels/base/block_sum.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/ids.h"
#include "kernels/base/vector.cuh"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

__global__ void __launch_bounds__(threads) band_targets_kernel(Ids targets, const float* weights, std::int64_t rows,
                                                               BandEdges edges, int band, void* places, float* asked) {
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (r >= rows) return;
  const int place = edges.place(targets[r], band);
  write_id(places, targets.wide, r, place < 0 ? 0 : place);
  asked[r] = place < 0 ? 0.0f : weights != nullptr ? weights[r] : 1.0f;
}

// A block per row, which it reads three times: from the caches, the second and third.
__global__ void __launch_bounds__(threads)
    band_scores_kernel(const float* logits, int ids, const float* clusters, std::int64_t of_clusters, float* scores,
                       std::int64_t apart) {
  const std::int64_t row = blockIdx.x;
  const float* const x = logits + row * ids;
  float* const y = scores + row * apart;
  float most = -FLT_MAX, sum = 0;
  for (int j = static_cast<int>(threadIdx.x); j < ids; j += threads) most = fmaxf(most, x[j]);
  most = of_block<threads / 32>(most, Larger<float>{});
  for (int j = static_cast<int>(threadIdx.x); j < ids; j += threads) sum += expf(x[j] - most);
  sum = of_block<threads / 32>(sum, Sum<float>{});
  const float by = clusters[row * of_clusters] - most - logf(sum);
  for (int j = static_cast<int>(threadIdx.x); j < ids; j += threads) y[j] = x[j] + by;
}

}  // namespace

void band_targets(const BandTargetsArgs& args, const Launch& launch) {
  const std::int64_t rows = args.targets.count();
  if (rows == 0) return;
  run("band_targets", band_targets_kernel, {blocks_for(rows, threads), threads}, launch, ids_of(args.targets),
      args.weights.as<const float>(), rows, args.edges, args.band, args.places.data(), args.asked.as<float>());
}

void band_scores(const BandScoresArgs& args, const Launch& launch) {
  const std::int64_t rows = args.x.size(0);
  if (rows == 0) return;
  run("band_scores", band_scores_kernel, {static_cast<unsigned>(rows), threads}, launch, args.x.as<const float>(),
      static_cast<int>(args.x.size(1)), args.clusters.as<const float>() + args.cluster, args.clusters.size(1),
      args.y.as<float>(), args.y.stride(0));
}

}  // namespace longstride::kernels::cuda
