// Which problems the Hopper kernels support; the portable kernels do the rest.
#include <cstdint>

#include "kernels/attention/sm90/attention_sm90.h"
#include "kernels/attention/sm90/general/geometry.h"
#include "kernels/attention/sm90/general/row_set_kinds.h"
#include "kernels/attention/sm90/row_maps.h"

namespace longstride::kernels::cuda::sm90 {

namespace {

// Gradients are stored by 8 columns.
bool is_size(std::int64_t size) { return size >= 16 && size <= 128 && size % 8 == 0; }

// TMA: 16-byte aligned rows, strides below 2^40 bytes.
bool is_mappable(const Tensor& view) {
  if (view.dtype() != Dtype::bf16 && view.dtype() != Dtype::f16) return false;
  if (reinterpret_cast<std::uintptr_t>(view.data()) % 16 != 0 || view.stride(3) != 1) return false;
  constexpr std::int64_t longest = std::int64_t{1} << 38;  // elements
  for (int d = 0; d < 3; ++d)
    if (view.stride(d) <= 0 || view.stride(d) % 8 != 0 || view.stride(d) >= longest) return false;
  return view.stride(1) * view.size(1) < longest;
}

// No query sees a summary row of an incomplete period.
bool is_mappable(const Part& part, std::int32_t n) {
  const RowSet& keys = part.keys;
  if (keys.run >= keys.period || keys.run == 1) return true;
  return part.interval(keys, n - 1).end <= n / keys.period * keys.run;
}

bool is_mappable(const AttentionPlan& plan) {
  for (int number = 0; number < passes_in(plan); ++number) {
    Geometry geometry;
    if (!geometry_of(plan, number, geometry)) return false;
    RowSetKinds kinds;
    for (int p = 0; p < geometry.passes; ++p) {
      const PassGeometry& pass = geometry.pass[p];
      if (kinds.number_of(pass.queries) == RowSetKinds::most) return false;
      for (int i = 0; i < pass.parts; ++i)
        if (kinds.number_of(pass.part[i].keys) == RowSetKinds::most || !is_mappable(pass.part[i], plan.n)) return false;
    }
  }
  return true;
}

template <class Args>
bool supports_forward_views(const Args& args) {
  return is_size(args.q.size(3)) && is_size(args.v.size(3)) && args.scale > 0 && is_mappable(args.q) &&
         is_mappable(args.k) && is_mappable(args.v) && is_mappable(args.o) && is_mappable(*args.plan);
}

}  // namespace

bool supports(const AttentionArgs& args) { return supports_forward_views(args); }

bool supports(const AttentionBackwardArgs& args) {
  return supports_forward_views(args) && is_mappable(args.dout) && is_mappable(args.dq) && is_mappable(args.dk) &&
         is_mappable(args.dv);
}

}  // namespace longstride::kernels::cuda::sm90
