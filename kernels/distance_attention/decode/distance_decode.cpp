#include "kernels/distance_attention/decode/distance_decode.h"

#include <algorithm>

#include "kernels/base/tensor_checks.h"
#include "kernels/distance_attention/distance_attention.h"

namespace longstride::kernels {
namespace {

// The largest distance at which any query sees a key, plus one. With a compressed memory all heads keep all rows,
// because its rows are appended behind more recent ones.
std::int64_t capacity_of(const DecodedStream& s, std::int64_t dilation) {
  std::int64_t most = std::min(s.compressed + s.memory + s.segment, s.positions + s.before);
  if (s.compressed > 0) return most;
  if (s.window > 0) most = std::min(most, (s.window - 1) * dilation + 1);
  if (s.longest > 0) most = std::min(most, s.longest);
  return std::max<std::int64_t>(most, 1);
}

void check_cache(Device device, const DistanceCache& cache, const Tensor& rows) {
  check_computes(device, rows, "queries or keys");
  LONGSTRIDE_CHECK(cache.plan != nullptr && rows.rank() == 4 && rows.size(2) == std::ssize(cache.plan->rings),
                   "decoding {} without a plan for these heads", rows.shape().text());
  for (const Tensor* t : {&cache.keys, &cache.values}) {
    LONGSTRIDE_CHECK(t->rank() == 3 && t->size(0) == rows.size(0) && t->size(1) == cache.plan->rows &&
                         t->contiguous() && t->dtype() == rows.dtype(),
                     "a cache is {} of {} for {} of {}", t->shape().text(), name_of(t->dtype()), rows.shape().text(),
                     name_of(rows.dtype()));
    LONGSTRIDE_CHECK(
        device == Device::cpu || (t->size(2) <= most_distance_on_gpu && rows.size(2) <= most_distance_on_gpu),
        "{} heads of {} elements, but a GPU takes up to {} of up to {}", rows.size(2), t->size(2), most_distance_on_gpu,
        most_distance_on_gpu);
  }
}

void check_position(const DistanceDecodePlan& plan, std::int64_t first, std::int64_t count) {
  LONGSTRIDE_CHECK(first >= -plan.stream.before && first + count <= plan.stream.positions,
                   "positions {} to {} of a stream from {} to {}", first, first + count - 1, -plan.stream.before,
                   plan.stream.positions - 1);
}

}  // namespace

std::shared_ptr<const DistanceDecodePlan> make_distance_decode_plan(DecodedStream stream) {
  LONGSTRIDE_CHECK(stream.positions > 0 && stream.segment > 0 && stream.memory >= 0 && stream.before >= 0 &&
                       stream.before <= stream.compressed + stream.memory &&
                       stream.compressed + stream.memory + stream.segment < (1 << 24),
                   "{} positions in segments of {} with a memory of {} and {}, {} of it at the start", stream.positions,
                   stream.segment, stream.compressed, stream.memory, stream.before);
  LONGSTRIDE_CHECK(stream.compressed == 0 || (stream.compressed > 0 && stream.rate > 0 && stream.memory > 0 &&
                                              stream.memory % stream.segment == 0 && stream.segment % stream.rate == 0),
                   "a compressed memory of {} rows of {} each for a memory of {} in segments of {}", stream.compressed,
                   stream.rate, stream.memory, stream.segment);
  auto plan = std::make_shared<DistanceDecodePlan>();
  for (const std::int32_t dilation : stream.dilation) {
    const std::int64_t capacity = capacity_of(stream, dilation);
    plan->rings.push_back({plan->rows, static_cast<std::int32_t>(capacity), dilation});
    plan->rows += capacity;
  }
  plan->stream = std::move(stream);
  return plan;
}

void DistanceAppendArgs::check(Device device) const {
  check_cache(device, cache, k);
  check_rows(k, {k.size(0), k.size(1), k.size(2), cache.keys.size(2)}, k.dtype(), "k");
  check_rows(v, {k.size(0), k.size(1), k.size(2), cache.values.size(2)}, k.dtype(), "v");
  check_position(*cache.plan, first, k.size(1));
}

void DistanceDecodeArgs::check(Device device) const {
  check_cache(device, cache, q);
  const Dtype exact = exact_type(device, q.dtype());
  const std::int64_t heads = q.size(2), size = cache.keys.size(2);
  check_rows(q, {q.size(0), 1, heads, size}, q.dtype(), "q");
  check_rows(o, {q.size(0), 1, heads, cache.values.size(2)}, q.dtype(), "o");
  check_position(*cache.plan, position, 1);
  LONGSTRIDE_CHECK(!position_bias.given() || table.given(), "a position_bias without a table");
  if (table.given()) {
    LONGSTRIDE_CHECK(table.rank() == 3 && table.size(0) > 0 && (table.size(1) == heads || table.size(1) == 1),
                     "a table {}, but it must be (distances, {} or 1, {})", table.shape().text(), heads, size);
    check_rows(table, {table.size(0), table.size(1), size}, q.dtype(), "table");
  }
  if (content_bias.given()) check_vector(content_bias, heads * size, exact, "content_bias");
  if (position_bias.given()) check_vector(position_bias, heads * size, exact, "position_bias");
  if (!span.given()) return;
  check_vector(span, heads, exact, "span");
  LONGSTRIDE_CHECK(ramp > 0 && longest_span > 0, "a span of up to {} with a ramp of {}", longest_span, ramp);
}

}  // namespace longstride::kernels
