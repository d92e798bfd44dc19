// Chooses the CUDA kernels for an attention.
#include <algorithm>
#include <cstddef>
#include <stdexcept>

#include "kernels/attention/attention.h"
#include "kernels/attention/delta.h"
#include "kernels/attention/portable/portable.h"
#include "kernels/attention/sm90/attention_sm90.h"
#include "kernels/attention/sm90/band/band.h"
#include "kernels/attention/sm90/band/band_backward.h"
#include "kernels/attention/sm90/long_band/long_band.h"
#include "kernels/base/gpu_kind.h"

namespace longstride::kernels::cuda {

namespace {

template <class Args>
bool takes_sm90(const Args& args) {
  if (args.path == AttentionPath::portable) return false;
  const bool can = is_hopper() && sm90::supports(args);
  if (args.path == AttentionPath::sm90 && !can)
    throw std::runtime_error("the sm90 kernels do not support this GPU or this attention");
  return can;
}

}  // namespace

void attention(const AttentionArgs& args, const Launch& launch) {
  if (!takes_sm90(args)) return portable::attention(args, launch);
  sm90::is_band(args) ? sm90::attention_band(args, launch) : sm90::attention(args, launch);
}

void attention_backward(const AttentionBackwardArgs& args, const Launch& launch) {
  const bool hopper = takes_sm90(args);
  if (hopper && sm90::is_band(args)) return sm90::attention_backward_band(args, launch);
  auto* const delta = args.scratch.as<float>();
  attention_delta(args, delta, launch);
  sm90::LongBandPlan long_band;
  if (hopper && sm90::find_long_band(args, long_band)) {
    if (!long_band.in_turns) return sm90::attention_backward_classes(args, long_band, delta, launch);
    std::byte* const sums = args.scratch.as<std::byte>() + delta_bytes(args);
    return sm90::attention_backward_turns(args, long_band, delta, sums, launch);
  }
  sm90::JoinedPlan joined;
  if (hopper && sm90::find_joined(args, joined)) {
    std::byte* const sums = args.scratch.as<std::byte>() + delta_bytes(args);
    return sm90::attention_backward_joined(args, joined, delta, sums, launch);
  }
  attention_zero_unreached(args, launch);
  if (hopper) return sm90::attention_backward(args, delta, launch);
  portable::attention_backward(args, delta, launch);
}

}  // namespace longstride::kernels::cuda
