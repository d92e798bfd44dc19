#include <cmath>

#include "kernels/attention/cpu/tiles.h"
#include "kernels/attention/decode/decode.h"
#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {

namespace {

// heads: of the rows in the plan.
void check_cache(Device device, const DecodeCache& cache, const Tensor& rows, std::int64_t heads) {
  check_computes(device, rows, "queries or keys");
  LONGSTRIDE_CHECK(cache.plan != nullptr && rows.rank() == 4 && rows.size(2) == heads,
                   "decoding {} without a plan for these heads", rows.shape().text());
  for (const Tensor* t : {&cache.keys, &cache.values})
    LONGSTRIDE_CHECK(t->rank() == 3 && t->size(0) == rows.size(0) && t->size(1) == cache.plan->rows &&
                         t->contiguous() && t->dtype() == rows.dtype(),
                     "a cache is {} of {} for {} of {}", t->shape().text(), name_of(t->dtype()), rows.shape().text(),
                     name_of(rows.dtype()));
}

}  // namespace

void AppendArgs::check(Device device) const {
  check_cache(device, cache, k, cache.plan != nullptr ? cache.plan->key_heads : 0);
  check_rows(k, {k.size(0), k.size(1), k.size(2), cache.keys.size(2)}, k.dtype(), "k");
  check_rows(v, {k.size(0), k.size(1), k.size(2), cache.values.size(2)}, k.dtype(), "v");
  LONGSTRIDE_CHECK(first >= 0 && first + k.size(1) <= cache.plan->n, "positions {} to {} in a cache of {}", first,
                   first + k.size(1) - 1, cache.plan->n);
}

void DecodeArgs::check(Device device) const {
  check_cache(device, cache, q, cache.plan != nullptr ? std::ssize(cache.plan->heads) : 0);
  check_rows(q, {q.size(0), 1, q.size(2), cache.keys.size(2)}, q.dtype(), "q");
  check_rows(o, {q.size(0), 1, q.size(2), cache.values.size(2)}, q.dtype(), "o");
  LONGSTRIDE_CHECK(position >= 0 && position < cache.plan->n, "position {} in a cache of {}", position, cache.plan->n);
  if (sink.given()) check_vector(sink, q.size(2), exact_type(device, q.dtype()), "attention's sink");
}

namespace cpu {

namespace {

// The rows of one sequence's cache.
template <class T>
HeadRows<T> cache_of(const Tensor& view, std::int64_t sequence) {
  return {view.as<T>() + sequence * view.size(1) * view.size(2), view.size(2), view.size(2)};
}

// The online softmax of one query, whose accumulator is its row of o.
template <class T>
class Query {
 public:
  Query(const DecodeArgs& args, std::int64_t sequence, std::int64_t head)
      : q_(rows_of<const T>(args.q, sequence, head)),
        o_(rows_of<T>(args.o, sequence, head)),
        keys_(cache_of<const T>(args.cache.keys, sequence)),
        values_(cache_of<const T>(args.cache.values, sequence)),
        scale_(static_cast<T>(args.scale)) {
    std::fill(o_.data, o_.data + o_.size, T(0));
  }

  void attend(const CacheRing& ring, const RowSet& set, Interval in) {
    const bool by_entry = ring.set == set;  // otherwise the ring is in natural order
    for (std::int32_t begin = in.begin; begin < in.end; begin += chunk) {
      const std::int32_t count = std::min(chunk, in.end - begin);
      std::int64_t rows[chunk];
      each_entry(set, begin, count, [&](std::int32_t r, std::int32_t position) {
        rows[r] = ring.first_row + (by_entry ? begin + r : position) % ring.capacity;
      });
      add(rows, count);
    }
  }

  // sink: the head's logit; null: none.
  void finish(const T* sink) const {
    const T sum = sum_ + (sink != nullptr ? std::exp(*sink - top_) : T(0));
    if (sum_ > 0)
      for (std::int64_t d = 0; d < o_.size; ++d) o_.data[d] /= sum;
  }

 private:
  static constexpr std::int32_t chunk = 64;

  void add(const std::int64_t* rows, std::int32_t count) {
    T score[chunk], top = top_;
    for (std::int32_t r = 0; r < count; ++r) {
      score[r] = scale_ * dot(q_.data, keys_.at(rows[r]), q_.size);
      top = std::max(top, score[r]);
    }
    const T shrink = exp_of(top_ - top);
    sum_ *= shrink;
    top_ = top;
    T* __restrict o = o_.data;
    for (std::int64_t d = 0; d < o_.size; ++d) o[d] *= shrink;
    for (std::int32_t r = 0; r < count; ++r) score[r] = exp_of(score[r] - top);
    for (std::int32_t r = 0; r < count; ++r) {
      sum_ += score[r];
      const T* __restrict v = values_.at(rows[r]);
      for (std::int64_t d = 0; d < o_.size; ++d) o[d] += score[r] * v[d];
    }
  }

  HeadRows<const T> q_;
  HeadRows<T> o_;
  HeadRows<const T> keys_, values_;
  T scale_, top_ = std::numeric_limits<T>::lowest(), sum_ = 0;
};

template <class T>
void append_rows(const AppendArgs& args) {
  const DecodePlan& plan = *args.cache.plan;
  const std::int64_t batch = args.k.size(0), rows = args.k.size(1), heads = std::ssize(plan.heads);
#pragma omp parallel for
  for (std::int64_t unit = 0; unit < batch * heads; ++unit) {
    const std::int64_t sequence = unit / heads, h = unit % heads;
    const DecodeHead& head = plan.heads[static_cast<std::size_t>(h)];
    if (head.shares) continue;
    const HeadRows<const T> k = shared_rows_of<const T>(args.k, sequence, h, heads),
                            v = shared_rows_of<const T>(args.v, sequence, h, heads);
    const HeadRows<T> keys = cache_of<T>(args.cache.keys, sequence), values = cache_of<T>(args.cache.values, sequence);
    for (std::int32_t r = 0; r < head.rings; ++r) {
      const CacheRing& ring = plan.rings[static_cast<std::size_t>(head.first_ring + r)];
      const auto first = static_cast<std::int32_t>(args.first), end = static_cast<std::int32_t>(args.first + rows);
      const std::int32_t stop = ring.set.count_below(end);
      // Rows that the same call would overwrite are not written.
      const std::int32_t start = std::max(ring.set.count_below(first), stop - ring.capacity);
      each_entry(ring.set, start, stop - start, [&](std::int32_t t, std::int32_t position) {
        const std::int64_t row = ring.first_row + (start + t) % ring.capacity;
        std::copy_n(k.at(position - first), k.size, keys.at(row));
        std::copy_n(v.at(position - first), v.size, values.at(row));
      });
    }
  }
}

template <class T>
void decode_rows(const DecodeArgs& args) {
  const DecodePlan& plan = *args.cache.plan;
  const std::int64_t batch = args.q.size(0), heads = args.q.size(2);
  const auto i = static_cast<std::int32_t>(args.position);
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t unit = 0; unit < batch * heads; ++unit) {
    const DecodeHead& head = plan.heads[static_cast<std::size_t>(unit % heads)];
    Query<T> query(args, unit / heads, unit % heads);
    for (std::int32_t p = 0; p < head.parts; ++p) {
      const CachedPart& cached = plan.parts[static_cast<std::size_t>(head.first_part + p)];
      const RowSet set = rows_within(cached.part.keys, i % cached.classes, plan.n);
      query.attend(plan.rings[static_cast<std::size_t>(cached.ring)], set, cached.part.interval(set, i));
    }
    query.finish(args.sink.given() ? args.sink.as<const T>() + unit % heads : nullptr);
  }
}

}  // namespace

void append(const AppendArgs& args, const Launch&) {
  with_float_type(args.k.dtype(), [&](auto zero) { append_rows<decltype(zero)>(args); });
}

void decode(const DecodeArgs& args, const Launch&) {
  with_float_type(args.q.dtype(), [&](auto zero) { decode_rows<decltype(zero)>(args); });
}

}  // namespace cpu
}  // namespace longstride::kernels
