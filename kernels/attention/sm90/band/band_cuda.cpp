// Recognises attentions that are bands, and chooses their kernel.
#include <cstdint>

#include "kernels/attention/sm90/band/band.h"
#include "kernels/attention/sm90/band/band_backward.h"
#include "kernels/attention/sm90/band/band_plan.h"

namespace longstride::kernels::cuda::sm90 {

bool is_band(const AttentionArgs& args) {
  BandPlan band;
  return args.q.size(3) <= widest_band_key && find_band(*args.plan, band) &&
         (args.v.size(3) <= 64 || band.reach <= most_large_reach);
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
