// Launches the CUDA kernels that were chosen for an attention.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>

#include "kernels/attention/attention.h"
#include "kernels/attention/choice.h"
#include "kernels/attention/delta.h"
#include "kernels/attention/grouped_gradients.h"
#include "kernels/attention/portable/portable.h"
#include "kernels/attention/sm90/attention_sm90.h"
#include "kernels/base/gpu_kind.h"

namespace longstride::kernels::cuda {

namespace {

// TMA: 16-byte aligned rows, strides below 2^40 bytes.
bool is_mappable(const Tensor& view) {
  if (reinterpret_cast<std::uintptr_t>(view.data()) % 16 != 0 || view.stride(3) != 1) return false;
  constexpr std::int64_t longest = std::int64_t{1} << 38;  // elements
  for (int d = 0; d < 3; ++d)
    if (view.stride(d) <= 0 || view.stride(d) % 8 != 0 || view.stride(d) >= longest) return false;
  return view.stride(1) * view.size(1) < longest;
}

// The choice, or the portable kernels where Hopper's cannot run on this GPU or with these tensors.
template <class Args>
AttentionChoice choose_here(const Args& args, std::initializer_list<const Tensor*> others) {
  AttentionChoice choice = choose(args);
  if (choice.family == AttentionFamily::one_query) return choice;
  const auto maps = [](const Tensor* view) { return is_mappable(*view); };
  if (choice.family != AttentionFamily::portable && is_hopper() && args.scale > 0 && is_mappable(args.q) &&
      is_mappable(args.k) && is_mappable(args.v) && is_mappable(args.o) &&
      std::all_of(others.begin(), others.end(), maps))
    return choice;
  if (args.path == AttentionPath::sm90)
    throw std::runtime_error("the sm90 kernels do not support this GPU or this attention");
  choice.family = AttentionFamily::portable;
  return choice;
}

void backward_by_head(const AttentionBackwardArgs& args, const Launch& launch) {
  const AttentionChoice choice = choose_here(args, {&args.dout, &args.dq, &args.dk, &args.dv});
  auto* const delta = args.scratch.as<float>();
  const bool is_band = choice.family == AttentionFamily::band;
  if (!is_band || args.dsink.given()) attention_delta(args.o, args.dout, delta, launch);
  if (args.dsink.given()) attention_sink_gradient(args, delta, launch);
  if (is_band) {
    const bool is_small = args.q.size(3) <= 32 && args.v.size(3) <= 32;
    return is_small ? sm90::attention_backward_band_small(args, choice.band, launch)
                    : sm90::attention_backward_band_large(args, choice.band, launch);
  }
  std::byte* const sums = args.scratch.as<std::byte>() + choice.delta_bytes;
  if (choice.family == AttentionFamily::classes)
    return sm90::attention_backward_classes(args, choice.long_band, delta, launch);
  if (choice.family == AttentionFamily::turns)
    return sm90::attention_backward_turns(args, choice.long_band, delta, sums, launch);
  if (choice.family == AttentionFamily::joined)
    return sm90::attention_backward_joined(args, choice.joined, delta, sums, launch);
  if (choice.family == AttentionFamily::intervals)
    return sm90::attention_backward_intervals(args, choice.intervals, delta, sums, launch);
  attention_zero_unreached(args, launch);
  if (choice.family == AttentionFamily::general) return sm90::attention_backward(args, choice, delta, sums, launch);
  portable::attention_backward(args, delta, reinterpret_cast<float*>(sums), launch);
}

}  // namespace

void attention(const AttentionArgs& args, const Launch& launch) {
  const AttentionChoice choice = choose_here(args, {});
  if (choice.family == AttentionFamily::portable) return portable::attention(args, launch);
  if (choice.family == AttentionFamily::one_query) return portable::one_query(args, choice.one_query, launch);
  if (choice.family == AttentionFamily::band) return sm90::attention_band(args, choice.band, launch);
  sm90::attention(args, choice, launch);
}

void attention_backward(const AttentionBackwardArgs& args, const Launch& launch) {
  GroupedGradients::run(args, launch, backward_by_head, repeat_heads_backward);
}

}  // namespace longstride::kernels::cuda
