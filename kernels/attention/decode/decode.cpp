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

// The first head of the same group that has the passes of `head`.
std::int64_t first_alike(const AttentionPlan& plan, std::int64_t head, std::int64_t group) {
  std::int64_t first = head / group * group;
  while (plan.heads[static_cast<std::size_t>(first)].first_pass !=
         plan.heads[static_cast<std::size_t>(head)].first_pass)
    ++first;
  return first;
}

}  // namespace

std::shared_ptr<const DecodePlan> make_decode_plan(const AttentionPlan& plan, std::int64_t key_heads) {
  if (looks_ahead(plan)) throw std::invalid_argument("a cache of the past, but the pattern looks ahead");
  auto decode = std::make_shared<DecodePlan>();
  decode->n = plan.n;
  const auto heads = static_cast<std::int64_t>(plan.heads.size());
  decode->key_heads = key_heads > 0 ? key_heads : heads;
  const auto add_ring = [&](CacheRing ring) {
    ring.first_row = decode->rows;
    decode->rings.push_back(ring);
    decode->rows += ring.capacity;
  };
  for (std::int64_t h = 0; h < heads; ++h) {
    if (const std::int64_t first = first_alike(plan, h, heads / decode->key_heads); first < h) {
      DecodeHead same = decode->heads[static_cast<std::size_t>(first)];
      same.shares = true;
      decode->heads.push_back(same);
      continue;
    }
    DecodeHead head{static_cast<std::int32_t>(decode->rings.size()), 0, static_cast<std::int32_t>(decode->parts.size()),
                    0, false};
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
