// Chooses the CUDA kernels for an attention.
#include <algorithm>
#include <stdexcept>

#include "kernels/attention/attention.h"
#include "kernels/attention/delta.h"
#include "kernels/attention/portable/portable.h"
#include "kernels/attention/sm90/attention_sm90.h"
#include "kernels/attention/sm90/band/band.h"
#include "kernels/base/gpu_kind.h"

namespace longstride::kernels::cuda {

namespace {

template <class Args>
bool takes_sm90(const Args& args) {
  if (args.path == AttentionPath::portable) return false;
  const bool can = is_hopper() && sm90::supports(args);
  if (args.path == AttentionPath::sm90 && !can)
    throw std::runtime_error("this GPU or this attention is not one that the sm90 kernels do");
  return can;
}

}  // namespace

std::size_t attention_workspace_bytes(const AttentionArgs&) { return 0; }

// Room for delta.
std::size_t attention_workspace_bytes(const AttentionBackwardArgs& args) {
  constexpr std::size_t line = 256;
  const auto rows = static_cast<std::size_t>(args.q.size[0] * args.q.size[1] * args.q.size[2]);
  return (rows * sizeof(float) + line - 1) / line * line;
}

void attention(const AttentionArgs& args, const Launch& launch) {
  if (!takes_sm90(args)) return portable::attention(args, launch);
  sm90::is_band(args) ? sm90::attention_band(args, launch) : sm90::attention(args, launch);
}

void attention_backward(const AttentionBackwardArgs& args, const Launch& launch) {
  const bool hopper = takes_sm90(args);
  if (hopper && sm90::is_band(args)) return sm90::attention_backward_band(args, launch);
  auto* const delta = static_cast<float*>(args.workspace);
  attention_delta(args, delta, launch);
  attention_zero_unreached(args, launch);
  if (hopper) return sm90::attention_backward(args, delta, launch);
  portable::attention_backward(args, delta, launch);
}

}  // namespace longstride::kernels::cuda
