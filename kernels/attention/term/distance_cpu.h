// The term of attention with distances (distance_attention.h) in the CPU's loops: a table's rows in scores, weights of
// exponentials and dropped probabilities, for one (sequence, head) at a time. A dilated head is a class after the
// other.
#pragma once
#include "kernels/attention/cpu/tiles.h"
#include "kernels/attention/pattern/tile_span.h"
#include "kernels/distance_attention/visible.h"

namespace longstride::kernels::cpu {

// One thread's matrices; columns are the queries of a tile, rows of by_distance the numbers of entries between a query
// and its key.
template <class T>
struct DistanceSpace {
  T *position, *position_t;          // (queries, d) and (d, queries): scale (q + the position bias)
  T *by_distance, *dby_distance;     // products with the table, and sums of gradients of scores
  T* dposition_t;                    // (d, queries)
  T *weights, *dspan;                // by number of entries, from -(tile.keys + tile.queries) on; per query
  std::int64_t weight_count, shift;  // shift: where the weight of 0 is

  DistanceSpace(const DistanceScores& s, TileShape tile, bool backward, Carver& carver) {
    const std::int64_t lanes = padded<T>(tile.queries), size = padded<T>(s.q.size(3)), n_k = s.k.size(1);
    const std::int64_t most = s.window > 0 ? std::min<std::int64_t>(n_k, s.window + tile.queries) : n_k;
    const std::int64_t distances = s.table.given() ? most + tile.queries : 0;
    position = carver.take<T>(lanes * size);
    position_t = carver.take<T>(lanes * size);
    by_distance = carver.take<T>(distances * lanes);
    dby_distance = carver.take<T>(backward ? distances * lanes : 0);
    dposition_t = carver.take<T>(backward ? lanes * size : 0);
    shift = tile.keys + tile.queries;
    weight_count = shift + n_k + lanes;
    weights = carver.take<T>(weight_count);
    dspan = carver.take<T>(lanes);
  }
};

// Contribution of one (sequence, head) to gradients of parameters.
template <class T>
struct DistanceSums {
  T *table, *content_bias, *position_bias, *span;  // (distances, padded d), (d), (d), (1)
  std::int64_t table_count, size;

  DistanceSums(const DistanceScores& s, bool with_table, Carver& carver) : size(s.q.size(3)) {
    table_count = with_table ? s.table.size(0) * padded<T>(size) : 0;
    table = carver.take<T>(table_count);
    content_bias = carver.take<T>(size);
    position_bias = carver.take<T>(size);
    span = carver.take<T>(1);
  }
  void clear() const {
    std::fill_n(table, table_count, T(0));
    std::fill_n(content_bias, size, T(0));
    std::fill_n(position_bias, size, T(0));
    *span = 0;
  }
};

template <class T>
class DistanceTerm {
 public:
  static constexpr bool given = true, weighs = true;

  // sums: where gradients of parameters are added; null in forward.
  DistanceTerm(const DistanceScores& s, std::int64_t sequence, std::int64_t head, const DistanceSpace<T>& space,
               const DistanceSums<T>* sums = nullptr)
      : space_(space),
        sums_(sums),
        kept_(s),
        keep_scale_(T(1) / (T(1) - static_cast<T>(s.dropout.p))),
        size_(s.q.size(3)),
        n_q_(static_cast<std::int32_t>(s.q.size(1))),
        n_k_(static_cast<std::int32_t>(s.k.size(1))),
        sequence_(static_cast<std::int32_t>(sequence)),
        head_(static_cast<std::int32_t>(head)),
        bounds_(bounds_of(s.bounds, sequence, head)),
        scale_(static_cast<T>(s.scale)),
        span_slope_(static_cast<T>(s.longest_span / std::max(s.ramp, 1e-30))) {
    if (s.table.given()) {
      table_ = s.table.as<const T>() + (s.table.size(1) > 1 ? head * s.table.stride(1) : 0);
      table_stride_ = s.table.stride(0);
      distances_ = static_cast<std::int32_t>(s.table.size(0));
    }
    if (s.content_bias.given()) content_bias_ = s.content_bias.as<const T>() + head * size_;
    if (s.position_bias.given()) position_bias_ = s.position_bias.as<const T>() + head * size_;
    if (s.first_key.given()) first_key_ = std::clamp(s.first_key.as<const std::int32_t>()[sequence], 0, n_k_);
    if (!s.dilation.empty()) step_ = std::min(s.dilation[static_cast<std::size_t>(head)], n_k_);
    Ramp<T> ramp;
    if (s.span.given()) ramp = {s.span.as<const T>()[head], static_cast<T>(s.longest_span), static_cast<T>(s.ramp)};
    reach_ = reach_of(n_k_, static_cast<std::int32_t>(s.window), s.self, step_, ramp);
    while (reach_.end > reach_.begin && ramp.weight((reach_.end - 1) * step_) == 0) --reach_.end;
    std::fill_n(space_.weights, space_.weight_count, T(0));
    for (std::int32_t m = reach_.begin; m < reach_.end; ++m) space_.weights[space_.shift + m] = ramp.weight(m * step_);
    if (sums_ != nullptr) sums_->clear();
  }

  // Classes of queries that see no key of each other.
  std::int32_t classes() const { return step_; }
  // Without the keys that no query reads, which may hold anything.
  void enter(std::int32_t number) {
    class_ = residue_class(number, step_, n_q_, n_k_, first_key_);
    const std::int32_t unread = std::clamp(class_.first_query - std::max(reach_.end, 1) + 1, 0, class_.entries);
    class_ = {class_.position(unread), step_, class_.entries - unread, class_.first_query - unread,
              std::max(class_.first_key - unread, 0)};
  }
  RowSet keys() const { return {class_.first, 1, step_, class_.entries}; }
  RowSet queries() const {
    return {class_.position(class_.first_query) - (n_k_ - n_q_), 1, step_,
            std::max(class_.entries - class_.first_query, 0)};
  }
  Interval interval(std::int32_t query) const {
    const std::int32_t entry = (query + n_k_ - n_q_ - class_.first) / step_;
    const std::int32_t begin = std::max(class_.first_key, entry - reach_.end + 1);
    return bounds_.clamp({begin, std::max(begin, entry - reach_.begin + 1)}, keys(), query);
  }
  TileWalk walk_keys(std::int32_t tile, TileShape shape) const {
    const RowSet set = queries();
    const Tile rows = tile_at(set, tile, shape.queries);
    const Interval first = interval(set.position(rows.begin)),
                   last = interval(set.position(rows.begin + rows.rows - 1));
    return TileWalk({first.begin / shape.keys, tiles_in(last.begin, shape.keys), first.end / shape.keys,
                     tiles_in(std::min(last.end, class_.entries), shape.keys)});
  }
  const T* content_bias() const { return content_bias_; }

  // The weights of a key for the queries from this lane on.
  const T* weights_of(std::int32_t key, std::int64_t lane) const {
    return space_.weights + space_.shift + first_ + lane - key;
  }

  void load_queries(const HeadRows<const T>& q, const T*, const RowSet& queries, Tile tile, std::int64_t lanes) {
    tile_ = tile;
    first_ = class_.first_query + tile.begin;
    const Interval first = interval(queries.position(tile.begin)),
                   last = interval(queries.position(tile.begin + tile.rows - 1));
    m_begin_ = std::max(0, first_ - (last.end - 1));
    m_end_ = std::max(m_begin_, first_ + tile.rows - first.begin);
    std::fill_n(space_.dspan, lanes, T(0));
    if (table_ == nullptr) return;
    // One row of T per m up to `own_`, and the last one for all m from there on.
    const std::int32_t beyond = (distances_ - 1 + step_ - 1) / step_;
    own_ = std::clamp(beyond, m_begin_, m_end_) - m_begin_;
    rest_ = own_ < m_end_ - m_begin_ ? 1 : 0;
    const std::int64_t ld = padded<T>(size_);
    gather_biased(q, queries, tile, scale_, position_bias_, space_.position, ld, lanes);
    transpose(space_.position, ld, lanes, size_, space_.position_t, lanes);
    each_row([&](const T* rows, std::int64_t stride, std::int64_t, std::int64_t at, std::int64_t count) {
      multiply<Into::zero, T>({rows, stride, 1}, space_.position_t, lanes, space_.by_distance + at * lanes, lanes,
                              count, lanes, size_);
    });
    if (sums_ != nullptr) std::fill_n(space_.dby_distance, (own_ + rest_) * lanes, T(0));
  }

  // s(key, query) += scale (q + the position bias) . T of their distance.
  void add_scores(const Block& block, Tile keys, T* s, std::int64_t ld) const {
    each_distance(block, keys, ld, [&](std::int64_t of_pair, std::int64_t of_distance) {
      s[of_pair] += space_.by_distance[of_distance];
    });
  }
  // Gradients of scores, summed by distance.
  void add_gradients(const Block& block, Tile keys, const T* ds, std::int64_t ld) const {
    each_distance(block, keys, ld, [&](std::int64_t of_pair, std::int64_t of_distance) {
      space_.dby_distance[of_distance] += ds[of_pair];
    });
  }

  // Drops probabilities and scales the kept ones.
  void drop(const Block& block, Tile keys, T* p, std::int64_t ld) const {
    if (kept_.limit == 0) return;
    for (std::int32_t r = block.first_row; r < block.first_row + block.rows; ++r) {
      T keep[most_lanes];
      draw(keys.begin + r, keep);
      for (std::int64_t x = block.first_lane; x < block.first_lane + block.lanes; ++x) p[r * ld + x] *= keep[x];
    }
  }

  // P, with the dropped ones 0, and dS, from scores and dO V^T.
  void differentiate(const Block& block, Tile keys, T* scores, T* gradients, const T* __restrict lse,
                     const T* __restrict delta, std::int64_t ld) const {
    T* __restrict dspan = space_.dspan;
    for (std::int32_t r = block.first_row; r < block.first_row + block.rows; ++r) {
      T keep[most_lanes];
      draw(keys.begin + r, keep);
      const T* __restrict w = weights_of(keys.begin + r, 0);
      T* __restrict s = scores + r * ld;
      T* __restrict ds = gradients + r * ld;
      for (std::int64_t x = block.first_lane; x < block.first_lane + block.lanes; ++x) {
        const T unweighted = exp_of(s[x] - lse[x]), along = unweighted * (ds[x] * keep[x] - delta[x]);
        dspan[x] += w[x] < 1 ? along : T(0);
        ds[x] = w[x] * along;
        s[x] = w[x] * unweighted * keep[x];
      }
    }
  }

  // Adds the gradients through T to dq_t, which holds those through the keys; both lack the scale.
  void finish_queries(T* dq_t, std::int64_t lanes) const {
    *sums_->span += span_slope_ * sum_of_queries(space_.dspan);
    add_rows(dq_t, lanes, sums_->content_bias);
    if (table_ == nullptr) return;
    const std::int64_t ld = padded<T>(size_);
    std::fill_n(space_.dposition_t, size_ * lanes, T(0));
    each_row([&](const T* rows, std::int64_t stride, std::int64_t first, std::int64_t at, std::int64_t count) {
      const T* by_distance = space_.dby_distance + at * lanes;
      multiply<Into::sum, T>({rows, 1, stride}, by_distance, lanes, space_.dposition_t, lanes, size_, lanes, count);
      if (sums_->table_count > 0)
        multiply<Into::sum, T>({by_distance, lanes, 1}, space_.position, ld, sums_->table + first * ld,
                               stride / table_stride_ * ld, count, ld, tile_.rows);
    });
    add_rows(space_.dposition_t, lanes, sums_->position_bias);
    for (std::int64_t x = 0; x < size_ * lanes; ++x) dq_t[x] += space_.dposition_t[x];
  }

 private:
  static constexpr std::int64_t most_lanes = TileShape{}.queries;

  // In eight sums, whose rounding errors are smaller than those of one.
  T sum_of_queries(const T* x) const {
    T sum[8] = {};
    for (std::int32_t r = 0; r < tile_.rows; ++r) sum[r % 8] += x[r];
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
  }
  void add_rows(const T* columns, std::int64_t lanes, T* to) const {
    for (std::int64_t d = 0; d < size_; ++d) to[d] += scale_ * sum_of_queries(columns + d * lanes);
  }
  // f(rows of T, their stride, number of the first, row of by_distance, count).
  template <class F>
  void each_row(F&& f) const {
    const std::int64_t first = std::int64_t{m_begin_} * step_, last = distances_ - 1;
    if (own_ > 0) f(table_ + first * table_stride_, step_ * table_stride_, first, std::int64_t{0}, own_);
    if (rest_ > 0) f(table_ + last * table_stride_, table_stride_, last, own_, rest_);
  }
  // f(element of a tile, element of by_distance) of the pairs of a block that a query may see.
  template <class F>
  void each_distance(const Block& block, Tile keys, std::int64_t ld, F&& f) const {
    if (table_ == nullptr) return;
    const std::int64_t most = own_ + rest_ - 1;
    for (std::int64_t r = block.first_row; r < block.first_row + block.rows; ++r) {
      const std::int64_t before = first_ - (keys.begin + r);  // m of lane 0
      const std::int64_t begin = std::max(block.first_lane, m_begin_ - before);
      const std::int64_t end = std::min({block.first_lane + block.lanes, std::int64_t{tile_.rows}, m_end_ - before});
      const std::int64_t own = std::clamp(most + m_begin_ - before, begin, std::max(begin, end));
      for (std::int64_t x = begin; x < own; ++x) f(r * ld + x, (before + x - m_begin_) * ld + x);
      for (std::int64_t x = own; x < end; ++x) f(r * ld + x, most * ld + x);
    }
  }
  // K / (1 - p) of a key's pairs.
  void draw(std::int32_t key, T (&keep)[most_lanes]) const {
    std::fill_n(keep, most_lanes, T(1));
    if (kept_.limit == 0) return;
    const KeptProbabilities kept = kept_;  // copies, so that the loop becomes vectors
    const std::uint32_t step = kept.step_word();
    const std::int32_t position = class_.position(key), query = class_.position(first_) - (n_k_ - n_q_), apart = step_;
    const T scale = keep_scale_;
    for (std::int32_t r = 0; r < tile_.rows; ++r)
      keep[r] = kept.keeps(kept.row(sequence_, head_, query + r * apart), position, step) ? scale : T(0);
  }

  const DistanceSpace<T>& space_;
  const DistanceSums<T>* sums_;
  KeptProbabilities kept_;
  T keep_scale_;
  std::int64_t size_, table_stride_ = 0;
  const T *table_ = nullptr, *content_bias_ = nullptr, *position_bias_ = nullptr;
  std::int32_t distances_ = 0, step_ = 1, n_q_, n_k_, first_key_ = 0, sequence_, head_;
  BoundsOfHead bounds_;
  T scale_, span_slope_;
  Reach reach_;
  ResidueClass class_{};
  Tile tile_{};
  std::int32_t first_ = 0, m_begin_ = 0, m_end_ = 0;  // entry of the first query; [m_begin, m_end) of the tile
  std::int64_t own_ = 0, rest_ = 0;
};

}  // namespace longstride::kernels::cpu
