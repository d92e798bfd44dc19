// Recognises attentions that are bands, and chooses their kernel.
#include <algorithm>
#include <cstdint>

#include "kernels/attention/sm90/band/band.h"
#include "kernels/attention/sm90/band/band_backward.h"
#include "kernels/attention/sm90/band/band_plan.h"

namespace longstride::kernels::cuda::sm90 {

bool is_band(const AttentionArgs& args) {
  const std::int64_t larger = std::max(args.q.size(3), args.v.size(3));
  const std::int32_t most = larger > 64 ? most_large_reach : larger > 32 ? most_shared_reach : most_reach;
  BandPlan band;
  return find_any_band(*args.plan, band) && band.reach <= most;
}

bool is_band(const AttentionBackwardArgs& args) {
  BandPlan band;
  return args.q.size(3) <= widest_band_key && find_band(*args.plan, band);
}

void attention_backward_band(const AttentionBackwardArgs& args, const Launch& launch) {
  BandPlan band;
  find_band(*args.plan, band);
  const bool small = args.q.size(3) <= 32 && args.v.size(3) <= 32;
  small ? attention_backward_band_small(args, band, launch) : attention_backward_band_large(args, band, launch);
}

}  // namespace longstride::kernels::cuda::sm90
