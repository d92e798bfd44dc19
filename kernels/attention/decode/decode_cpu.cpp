#include "kernels/attention/cpu/tile_walk.h"
#include "kernels/attention/decode/decode.h"

namespace longstride::kernels::cpu {

namespace {

// The rows of one sequence's cache.
template <class T>
Rows<T> cache_of(const View& view, std::int64_t sequence) {
  return {view.as<T>() + sequence * view.size[1] * view.size[2], view.size[2], view.size[2]};
}

// The online softmax of one query, whose accumulator is its row of o.
template <class T>
class Query {
 public:
  Query(const DecodeArgs& args, std::int64_t sequence, std::int64_t head)
      : q_(rows_of<const T>(args.q, sequence, head)),
        o_(rows_of<T>(args.o, sequence, head)),
        keys_(cache_of<const T>(args.keys, sequence)),
        values_(cache_of<const T>(args.values, sequence)),
        scale_(static_cast<T>(args.scale)) {
    std::fill(o_.data, o_.data + o_.size, T(0));
  }

  void attend(const CacheRing& ring, const Stream& stream, Interval in) {
    const bool by_entry = ring.stream == stream;  // otherwise the ring is in natural order
    for (std::int32_t begin = in.begin; begin < in.end; begin += chunk) {
      const std::int32_t count = std::min(chunk, in.end - begin);
      std::int64_t rows[chunk];
      each_entry(stream, begin, count, [&](std::int32_t r, std::int32_t position) {
        rows[r] = ring.first_row + (by_entry ? begin + r : position) % ring.capacity;
      });
      add(rows, count);
    }
  }

  void finish() const {
    if (sum_ > 0)
      for (std::int64_t d = 0; d < o_.size; ++d) o_.data[d] /= sum_;
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

  Rows<const T> q_;
  Rows<T> o_;
  Rows<const T> keys_, values_;
  T scale_, top_ = std::numeric_limits<T>::lowest(), sum_ = 0;
};

template <class T>
void append_rows(const AppendArgs& args) {
  const DecodePlan& plan = *args.plan;
  const std::int64_t batch = args.k.size[0], rows = args.k.size[1], heads = args.k.size[2];
#pragma omp parallel for
  for (std::int64_t unit = 0; unit < batch * heads; ++unit) {
    const std::int64_t sequence = unit / heads, h = unit % heads;
    const DecodeHead& head = plan.heads[static_cast<std::size_t>(h)];
    const Rows<const T> k = rows_of<const T>(args.k, sequence, h), v = rows_of<const T>(args.v, sequence, h);
    const Rows<T> keys = cache_of<T>(args.keys, sequence), values = cache_of<T>(args.values, sequence);
    for (std::int32_t r = 0; r < head.rings; ++r) {
      const CacheRing& ring = plan.rings[static_cast<std::size_t>(head.first_ring + r)];
      const auto first = static_cast<std::int32_t>(args.first), end = static_cast<std::int32_t>(args.first + rows);
      const std::int32_t stop = ring.stream.count_below(end);
      // Rows that the same call would overwrite are not written.
      const std::int32_t start = std::max(ring.stream.count_below(first), stop - ring.capacity);
      each_entry(ring.stream, start, stop - start, [&](std::int32_t t, std::int32_t position) {
        const std::int64_t row = ring.first_row + (start + t) % ring.capacity;
        std::copy_n(k.at(position - first), k.size, keys.at(row));
        std::copy_n(v.at(position - first), v.size, values.at(row));
      });
    }
  }
}

template <class T>
void decode_rows(const DecodeArgs& args) {
  const DecodePlan& plan = *args.plan;
  const std::int64_t batch = args.q.size[0], heads = args.q.size[2];
  const auto i = static_cast<std::int32_t>(args.position);
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t unit = 0; unit < batch * heads; ++unit) {
    const DecodeHead& head = plan.heads[static_cast<std::size_t>(unit % heads)];
    Query<T> query(args, unit / heads, unit % heads);
    for (std::int32_t p = 0; p < head.parts; ++p) {
      const CachedPart& cached = plan.parts[static_cast<std::size_t>(head.first_part + p)];
      const Stream stream = stream_within(cached.part.keys, i % cached.segments, plan.n);
      query.attend(plan.rings[static_cast<std::size_t>(cached.ring)], stream, cached.part.interval(stream, i));
    }
    query.finish();
  }
}

}  // namespace

void append(const AppendArgs& args, const Launch&) {
  with_float_type(args.k.dtype, [&](auto zero) { append_rows<decltype(zero)>(args); });
}

void decode(const DecodeArgs& args, const Launch&) {
  with_float_type(args.q.dtype, [&](auto zero) { decode_rows<decltype(zero)>(args); });
}

}  // namespace longstride::kernels::cpu
