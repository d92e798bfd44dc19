#include "kernels/attention/decode/decode.h"

#include <algorithm>
#include <stdexcept>

namespace longstride::kernels {

namespace {

// A ring with room for all keys of the part that a later query may need. Classes share one, in natural order.
CacheRing ring_of(const Pass& pass, const Part& part, std::int32_t n) {
  const RowSet set = pass.classes > 1 ? RowSet{0, n, n, n} : part.keys;
  if (part.low.back >= n) return {set, set.length};  // limits at the start: all keys stay needed
  const std::int32_t positions = (part.low.block > 0 ? part.low.block : 1) + part.low.back;
  return {set, std::min(set.length, positions)};
}

}  // namespace

std::shared_ptr<const DecodePlan> make_decode_plan(const AttentionPlan& plan) {
  if (looks_ahead(plan)) throw std::invalid_argument("a cache of the past, but the pattern looks ahead");
  auto decode = std::make_shared<DecodePlan>();
  decode->n = plan.n;
  const auto add_ring = [&](CacheRing ring) {
    ring.first_row = decode->rows;
    decode->rings.push_back(ring);
    decode->rows += ring.capacity;
  };
  for (std::int64_t h = 0; h < static_cast<std::int64_t>(plan.heads.size()); ++h) {
    DecodeHead head{static_cast<std::int32_t>(decode->rings.size()), 0, static_cast<std::int32_t>(decode->parts.size()),
                    0};
    bool every_row = false;  // then one ring of all rows serves all parts
    for (const Pass& pass : plan.passes_of(h))
      for (const Part& part : plan.parts_of(pass)) every_row |= ring_of(pass, part, plan.n).capacity == plan.n;
    if (every_row) add_ring({{0, plan.n, plan.n, plan.n}, plan.n});
    for (const Pass& pass : plan.passes_of(h))
      for (const Part& part : plan.parts_of(pass)) {
        if (!every_row) add_ring(ring_of(pass, part, plan.n));
        decode->parts.push_back({part, pass.classes, static_cast<std::int32_t>(decode->rings.size()) - 1});
      }
    head.rings = static_cast<std::int32_t>(decode->rings.size()) - head.first_ring;
    head.parts = static_cast<std::int32_t>(decode->parts.size()) - head.first_part;
    decode->heads.push_back(head);
  }
  return decode;
}

}  // namespace longstride::kernels
