#include "kernels/attention/decode.h"

#include <algorithm>

namespace longstride::kernels {

namespace {

bool reads_every_row(const Part& part) { return part.kind == PartKind::dense || part.kind == PartKind::column; }

// Most entries that any query may still need at once.
std::int32_t capacity_of(const Part& part, std::int32_t n) {
  if (part.low.back >= n) return part.keys.length;  // from the start: nothing is ever forgotten
  return std::min(part.keys.length, (part.low.block > 0 ? part.low.block : 1) + part.low.back);
}

}  // namespace

std::shared_ptr<const DecodePlan> make_decode_plan(const AttentionPlan& plan) {
  auto decode = std::make_shared<DecodePlan>();
  decode->n = plan.n;
  const auto add_ring = [&](const Stream& stream, std::int32_t capacity) {
    decode->rings.push_back({stream, capacity, decode->rows});
    decode->rows += capacity;
  };
  for (std::int64_t h = 0; h < static_cast<std::int64_t>(plan.heads.size()); ++h) {
    DecodeHead head{static_cast<std::int32_t>(decode->rings.size()), 0, static_cast<std::int32_t>(decode->parts.size()),
                    0};
    bool every_row = false;
    for (const Pass& pass : plan.passes_of(h))
      for (const Part& part : plan.parts_of(pass)) every_row |= reads_every_row(part);
    if (every_row) add_ring({0, plan.n, plan.n, plan.n}, plan.n);
    for (const Pass& pass : plan.passes_of(h))
      for (const Part& part : plan.parts_of(pass)) {
        if (!every_row) add_ring(part.keys, capacity_of(part, plan.n));
        decode->parts.push_back({part, pass.segments, static_cast<std::int32_t>(decode->rings.size()) - 1});
      }
    head.rings = static_cast<std::int32_t>(decode->rings.size()) - head.first_ring;
    head.parts = static_cast<std::int32_t>(decode->parts.size()) - head.first_part;
    decode->heads.push_back(head);
  }
  return decode;
}

}  // namespace longstride::kernels
