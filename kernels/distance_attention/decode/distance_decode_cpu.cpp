#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention/cpu/tiles.h"
#include "kernels/distance_attention/decode/distance_decode.h"
#include "kernels/distance_attention/visible.h"

namespace longstride::kernels::cpu {
namespace {

// A head's ring of one sequence.
template <class T>
struct RingRows {
  T* data;
  std::int64_t size, before, capacity;

  RingRows(const Tensor& cache, const DistanceDecodePlan& plan, std::int64_t sequence, std::int64_t head)
      : data(cache.as<T>() +
             (sequence * plan.rows + plan.rings[static_cast<std::size_t>(head)].first_row) * cache.size(2)),
        size(cache.size(2)),
        before(plan.stream.before),
        capacity(plan.rings[static_cast<std::size_t>(head)].capacity) {}
  T* at(std::int64_t position) const { return data + (position + before) % capacity * size; }
};

template <class T>
void append_rows(const DistanceAppendArgs& args) {
  const DistanceDecodePlan& plan = *args.cache.plan;
  const std::int64_t batch = args.k.size(0), rows = args.k.size(1), heads = args.k.size(2);
#pragma omp parallel for
  for (std::int64_t unit = 0; unit < batch * heads; ++unit) {
    const std::int64_t sequence = unit / heads, h = unit % heads;
    const HeadRows<const T> k = rows_of<const T>(args.k, sequence, h), v = rows_of<const T>(args.v, sequence, h);
    const RingRows<T> keys(args.cache.keys, plan, sequence, h), values(args.cache.values, plan, sequence, h);
    // Rows that the same call would overwrite are not written.
    for (std::int64_t r = std::max<std::int64_t>(0, rows - keys.capacity); r < rows; ++r) {
      std::copy_n(k.at(r), k.size, keys.at(args.first + r));
      std::copy_n(v.at(r), v.size, values.at(args.first + r));
    }
  }
}

// The softmax of one query of one head. `scores` holds room for all its keys.
template <class T>
struct DecodedHead {
  const DistanceDecodeArgs& args;
  std::int64_t sequence, head;
  std::vector<T>& scores;

  std::int64_t size() const { return args.q.size(3); }
  std::int64_t step() const { return args.cache.plan->rings[static_cast<std::size_t>(head)].dilation; }
  Ramp<T> ramp() const {
    if (!args.span.given()) return {};
    return {args.span.as<const T>()[head], static_cast<T>(args.longest_span), static_cast<T>(args.ramp)};
  }
  // The numbers m of the keys at position - m step.
  Reach reach() const {
    const DecodedStream& s = args.cache.plan->stream;
    const std::int64_t first = SeenPositions(s).first(args.position);
    const std::int64_t kept = args.cache.plan->rings[static_cast<std::size_t>(head)].capacity - 1;
    const auto entries = static_cast<std::int32_t>(std::min(args.position - first, kept) / step() + 1);
    return reach_of(entries, static_cast<std::int32_t>(s.window), s.self, static_cast<std::int32_t>(step()), ramp());
  }
  T score(const T* q, const T* key, std::int32_t m) const {
    const auto of_head = [&](const Tensor& bias, std::int64_t d) {
      return bias.given() ? bias.as<const T>()[head * size() + d] : T(0);
    };
    T sum = 0;
    for (std::int64_t d = 0; d < size(); ++d) sum += (q[d] + of_head(args.content_bias, d)) * key[d];
    if (!args.table.given()) return sum * static_cast<T>(args.scale);
    const std::int64_t row =
        table_row(m, static_cast<std::int32_t>(step()), static_cast<std::int32_t>(args.table.size(0)));
    const T* t = args.table.as<const T>() + row * args.table.stride(0) +
                 (args.table.size(1) > 1 ? head * args.table.stride(1) : 0);
    for (std::int64_t d = 0; d < size(); ++d) sum += (q[d] + of_head(args.position_bias, d)) * t[d];
    return sum * static_cast<T>(args.scale);
  }

  void run() const {
    const DistanceDecodePlan& plan = *args.cache.plan;
    const RingRows<const T> keys(args.cache.keys, plan, sequence, head),
        values(args.cache.values, plan, sequence, head);
    const T* q = rows_of<const T>(args.q, sequence, head).data;
    const HeadRows<T> o = rows_of<T>(args.o, sequence, head);
    const Reach in = reach();
    const Ramp<T> weights = ramp();
    T largest = -std::numeric_limits<T>::infinity(), sum = 0;
    for (std::int32_t m = in.begin; m < in.end; ++m) {
      T& s = scores[static_cast<std::size_t>(m)];
      s = weights.weight(m * static_cast<std::int32_t>(step())) > 0 ? score(q, keys.at(args.position - m * step()), m)
                                                                    : -std::numeric_limits<T>::infinity();
      largest = std::max(largest, s);
    }
    std::fill_n(o.data, o.size, T(0));
    if (std::isinf(largest)) return;  // nothing to attend to
    for (std::int32_t m = in.begin; m < in.end; ++m) {
      const T p = weights.weight(m * static_cast<std::int32_t>(step())) *
                  std::exp(scores[static_cast<std::size_t>(m)] - largest);
      const T* v = values.at(args.position - m * step());
      sum += p;
      for (std::int64_t d = 0; p > 0 && d < o.size; ++d) o.data[d] += p * v[d];
    }
    for (std::int64_t d = 0; d < o.size; ++d) o.data[d] /= sum;
  }
};

template <class T>
void decode_rows(const DistanceDecodeArgs& args) {
  const std::int64_t batch = args.q.size(0), heads = args.q.size(2);
  std::int32_t most = 0;
  for (const DistanceRing& ring : args.cache.plan->rings) most = std::max(most, ring.capacity);
#pragma omp parallel
  {
    std::vector<T> scores(static_cast<std::size_t>(most) + 1);
#pragma omp for
    for (std::int64_t unit = 0; unit < batch * heads; ++unit)
      DecodedHead<T>{args, unit / heads, unit % heads, scores}.run();
  }
}

}  // namespace

void distance_append(const DistanceAppendArgs& args, const Launch&) {
  with_float_type(args.k.dtype(), [&](auto zero) { append_rows<decltype(zero)>(args); });
}

void distance_decode(const DistanceDecodeArgs& args, const Launch&) {
  with_float_type(args.q.dtype(), [&](auto zero) { decode_rows<decltype(zero)>(args); });
}

}  // namespace longstride::kernels::cpu
