// Which problems the Hopper kernels support; the portable kernels do the rest.
#include <cstdint>

#include "kernels/attention/fast_path.h"
#include "kernels/attention/sm90/attention_sm90.h"

namespace longstride::kernels::cuda::sm90 {

namespace {

// TMA: 16-byte aligned rows, strides below 2^40 bytes.
bool is_mappable(const Tensor& view) {
  if (view.dtype() != Dtype::bf16 && view.dtype() != Dtype::f16) return false;
  if (reinterpret_cast<std::uintptr_t>(view.data()) % 16 != 0 || view.stride(3) != 1) return false;
  constexpr std::int64_t longest = std::int64_t{1} << 38;  // elements
  for (int d = 0; d < 3; ++d)
    if (view.stride(d) <= 0 || view.stride(d) % 8 != 0 || view.stride(d) >= longest) return false;
  return view.stride(1) * view.size(1) < longest;
}

template <class Args>
bool supports_forward_views(const Args& args) {
  return hopper_takes_head(args.q.size(3)) && hopper_takes_head(args.v.size(3)) && args.scale > 0 &&
         is_mappable(args.q) && is_mappable(args.k) && is_mappable(args.v) && is_mappable(args.o) &&
         hopper_takes(*args.plan);
}

}  // namespace

bool supports(const AttentionArgs& args) { return supports_forward_views(args); }

bool supports(const AttentionBackwardArgs& args) {
  return supports_forward_views(args) && is_mappable(args.dout) && is_mappable(args.dq) && is_mappable(args.dk) &&
         is_mappable(args.dv);
}

}  // namespace longstride::kernels::cuda::sm90
