#include "kernels/distance_attention/distance_attention.h"

#include <algorithm>

#include "kernels/base/tensor_checks.h"
#include "kernels/distance_attention/visible.h"

namespace longstride::kernels {
namespace {

void check_values(Device device, const DistanceScores& s, const Tensor& v, const Tensor& o, const Tensor& lse) {
  s.check(device);
  const Dtype dtype = s.q.dtype(), exact = exact_type(device, dtype);
  const std::int64_t batch = s.q.size(0), n_q = s.q.size(1), heads = s.q.size(2);
  LONGSTRIDE_CHECK(v.rank() == 4, "v is {}, but must be (batch, n_k, heads, size)", v.shape().text());
  check_rows(v, {batch, s.k.size(1), heads, v.size(3)}, dtype, "v");
  check_rows(o, {batch, n_q, heads, v.size(3)}, dtype, "o");
  LONGSTRIDE_CHECK(device == Device::cpu || v.size(3) <= most_distance_on_gpu, "values of {} elements, more than {}",
                   v.size(3), most_distance_on_gpu);
  LONGSTRIDE_CHECK(lse.shape() == Shape({batch, heads, n_q}) && lse.contiguous() && lse.dtype() == exact,
                   "lse is {} of {}, but must be contiguous {} of {}", lse.shape().text(), name_of(lse.dtype()),
                   Shape({batch, heads, n_q}).text(), name_of(exact));
}

void check_span(const DistanceScores& s, Dtype exact) {
  if (!s.span.given()) return;
  check_vector(s.span, s.q.size(2), exact, "span");
  LONGSTRIDE_CHECK(s.ramp > 0 && s.longest_span > 0, "a span of up to {} with a ramp of {}", s.longest_span, s.ramp);
}

void check_dilation(const DistanceScores& s) {
  const std::int64_t heads = s.q.size(2);
  LONGSTRIDE_CHECK(s.dilation.empty() || std::ssize(s.dilation) == heads, "{} dilations for {} heads",
                   s.dilation.size(), heads);
  for (const std::int32_t d : s.dilation) LONGSTRIDE_CHECK(d >= 1, "a dilation of {}, but it must be positive", d);
}

// Bytes of every tensor that a call reads once.
double score_bytes(const DistanceScores& s) { return bytes_of(s.q, s.k, s.table); }

// f(weights of the head's distances), in the span's own type.
template <class F>
auto with_ramp(const DistanceScores& s, std::int64_t head, F&& f) {
  if (!s.span.given()) return f(Ramp<float>());
  if (s.span.dtype() == Dtype::f64) return f(Ramp<double>(s.span.as<const double>()[head], s.longest_span, s.ramp));
  return f(Ramp<float>(s.span.as<const float>()[head], static_cast<float>(s.longest_span), static_cast<float>(s.ramp)));
}

Tensor scratch_of(std::size_t bytes) {
  return bytes == 0 ? Tensor() : Tensor(nullptr, Dtype::u8, {static_cast<std::int64_t>(bytes)});
}

}  // namespace

void DistanceScores::check(Device device) const {
  check_computes(device, q, "q");
  LONGSTRIDE_CHECK(q.rank() == 4 && k.rank() == 4, "q is {} and k {}, but both must be (batch, n, heads, size)",
                   q.shape().text(), k.shape().text());
  const std::int64_t batch = q.size(0), n_k = k.size(1), heads = q.size(2), size = q.size(3);
  const Dtype exact = exact_type(device, q.dtype());
  check_rows(q, q.shape(), q.dtype(), "q");
  check_rows(k, {batch, n_k, heads, size}, q.dtype(), "k");
  LONGSTRIDE_CHECK(q.size(1) <= n_k && n_k < (1 << 24), "{} queries of {} keys", q.size(1), n_k);
  LONGSTRIDE_CHECK(device == Device::cpu || (size <= most_distance_on_gpu && heads <= most_distance_on_gpu),
                   "{} heads of {} elements, but a GPU takes up to {} of up to {}", heads, size, most_distance_on_gpu,
                   most_distance_on_gpu);
  if (table.given()) {
    LONGSTRIDE_CHECK(table.rank() == 3 && table.size(0) > 0 && (table.size(1) == heads || table.size(1) == 1),
                     "a table {}, but it must be (distances, {} or 1, {})", table.shape().text(), heads, size);
    check_rows(table, {table.size(0), table.size(1), size}, q.dtype(), "table");
  }
  if (content_bias.given()) check_vector(content_bias, heads * size, exact, "content_bias");
  LONGSTRIDE_CHECK(!position_bias.given() || table.given(), "a position_bias without a table");
  if (position_bias.given()) check_vector(position_bias, heads * size, exact, "position_bias");
  if (first_key.given()) check_vector(first_key, batch, Dtype::i32, "first_key");
  for (const Tensor* t : {&bounds.begin, &bounds.end})
    LONGSTRIDE_CHECK(bounds.begin.given() == bounds.end.given() &&
                         (!t->given() || (t->rank() == 3 && t->size(0) == batch && t->size(2) == q.size(1) &&
                                          (t->size(1) == heads || t->size(1) == 1) && t->contiguous() &&
                                          t->size(1) == bounds.begin.size(1) && t->dtype() == Dtype::i32)),
                     "bounds {} of {}, but both must be contiguous ({}, {} or 1, {}) of i32", t->shape().text(),
                     name_of(t->dtype()), batch, heads, q.size(1));
  LONGSTRIDE_CHECK(window >= 0, "a window of {}", window);
  LONGSTRIDE_CHECK(dropout.p >= 0 && dropout.p < 1, "dropout is {}, but must be in [0, 1)", dropout.p);
  check_span(*this, exact);
  check_dilation(*this);
}

std::int64_t DistanceScores::pairs() const {
  DistanceScores without = *this;
  without.span = {};
  return without.weighted_pairs();
}

std::int64_t DistanceScores::weighted_pairs() const {
  const std::int64_t n_q = q.size(1), n_k = k.size(1);
  std::int64_t total = 0;
  for (std::int64_t h = 0; h < q.size(2); ++h) {
    const SeenEntries seen = seen_by(h);
    for (std::int64_t i = n_k - n_q; i < n_k; ++i)
      total += std::max<std::int64_t>(0, std::min(i / seen.step + 1, seen.end) - seen.begin);
  }
  return total;
}

std::int64_t DistanceScores::unread_keys() const {
  const std::int64_t before = k.size(1) - q.size(1);
  std::int64_t farthest = 0;
  for (std::int64_t h = 0; h < q.size(2); ++h) {
    const SeenEntries seen = seen_by(h);
    farthest = std::max(farthest, (seen.end - 1) * seen.step);
  }
  return std::clamp<std::int64_t>(before - farthest, 0, before);
}

double DistanceScores::weight(std::int64_t head, std::int64_t i, std::int64_t j) const {
  const SeenEntries seen = seen_by(head);
  const std::int64_t distance = k.size(1) - q.size(1) + i - j, m = distance / seen.step;
  if (distance < 0 || distance % seen.step != 0 || m < seen.begin || m >= seen.end) return 0;
  return with_ramp(*this, head, [&](const auto& weights) {
    return static_cast<double>(weights.weight(static_cast<std::int32_t>(distance)));
  });
}

SeenEntries DistanceScores::seen_by(std::int64_t head) const {
  const std::int32_t step = dilation.empty() ? 1 : dilation[static_cast<std::size_t>(head)];
  const Reach reach = with_ramp(*this, head, [&](const auto& weights) {
    return reach_of(static_cast<std::int32_t>(k.size(1)), static_cast<std::int32_t>(window), self, step, weights);
  });
  return {step, reach.begin, reach.end};
}

void DistanceAttentionArgs::check(Device device) const { check_values(device, scores, v, o, lse); }

void DistanceAttentionBackwardArgs::check(Device device) const {
  check_values(device, scores, v, o, lse);
  const Tensor &q = scores.q, &table = scores.table;
  const Dtype dtype = q.dtype(), exact = exact_type(device, dtype);
  check_rows(dout, o.shape(), dtype, "dout");
  check_rows(dq, q.shape(), dtype, "dq");
  check_rows(dk, scores.k.shape(), dtype, "dk");
  check_rows(dv, v.shape(), dtype, "dv");
  if (dtable.given()) check_rows(dtable, table.shape(), exact, "dtable");
  if (dcontent_bias.given()) check_vector(dcontent_bias, q.size(2) * q.size(3), exact, "dcontent_bias");
  LONGSTRIDE_CHECK(!dposition_bias.given() || table.given(), "a gradient of position_bias without a table");
  if (dposition_bias.given()) check_vector(dposition_bias, q.size(2) * q.size(3), exact, "dposition_bias");
  LONGSTRIDE_CHECK(!dspan.given() || scores.span.given(), "a gradient of an absent span");
  if (dspan.given()) check_vector(dspan, q.size(2), exact, "dspan");
}

Cost DistanceAttentionArgs::cost() const {
  const double products =
      static_cast<double>(scores.q.size(3)) * (scores.table.given() ? 2 : 1) + static_cast<double>(v.size(3));
  return {WorkKind::attention_forward, score_bytes(scores) + bytes_of(v, o, lse),
          2 * products * static_cast<double>(scores.q.size(0) * scores.pairs())};
}

// Scores, dq and dk are products of the key size, dP and dv of the value size; a table adds scores, dq and its own.
Cost DistanceAttentionBackwardArgs::cost() const {
  const double products =
      static_cast<double>(scores.q.size(3)) * (scores.table.given() ? 6 : 3) + 2 * static_cast<double>(v.size(3));
  return {WorkKind::attention_backward, score_bytes(scores) + bytes_of(v, o, lse, dout, dq, dk, dv) + bytes_of(dtable),
          2 * products * static_cast<double>(scores.q.size(0) * scores.pairs())};
}

Tensor DistanceAttentionArgs::scratch_on(Device device) const {
  return scratch_of(device == Device::cpu ? cpu::distance_attention_scratch_bytes(*this)
                                          : cuda::distance_attention_scratch_bytes(*this));
}

Tensor DistanceAttentionBackwardArgs::scratch_on(Device device) const {
  return scratch_of(device == Device::cpu ? cpu::distance_attention_scratch_bytes(*this)
                                          : cuda::distance_attention_scratch_bytes(*this));
}

}  // namespace longstride::kernels
