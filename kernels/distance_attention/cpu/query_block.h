// Shared by forward and backward on the CPU. A thread computes blocks of 32 queries of one residue class, with all
// their keys at once: matrices (keys, queries) with the queries in the lanes (kernels/attention/cpu/tile_math.h).
#pragma once
#include <algorithm>
#include <limits>

#include "kernels/attention/cpu/tiles.h"
#include "kernels/distance_attention/visible.h"

namespace longstride::kernels::cpu {

inline constexpr std::int32_t block_queries = 32;

// One (sequence, head) of a call.
template <class T>
struct DistanceHead {
  HeadRows<const T> q, k;
  const T *table = nullptr, *content_bias = nullptr, *position_bias = nullptr;
  std::int64_t table_stride = 0;  // between distances
  std::int32_t distances = 0, step = 1, n_q, n_k, first_key = 0;
  std::int32_t sequence, head;
  T scale;
  Ramp<T> ramp;
  Reach reach;

  DistanceHead(const DistanceScores& s, std::int64_t sequence_, std::int64_t head_)
      : q(rows_of<const T>(s.q, sequence_, head_)),
        k(rows_of<const T>(s.k, sequence_, head_)),
        n_q(static_cast<std::int32_t>(s.q.size(1))),
        n_k(static_cast<std::int32_t>(s.k.size(1))),
        sequence(static_cast<std::int32_t>(sequence_)),
        head(static_cast<std::int32_t>(head_)),
        scale(static_cast<T>(s.scale)) {
    if (s.table.given()) {
      table = s.table.as<const T>() + (s.table.size(1) > 1 ? head_ * s.table.stride(1) : 0);
      table_stride = s.table.stride(0);
      distances = static_cast<std::int32_t>(s.table.size(0));
    }
    if (s.content_bias.given()) content_bias = s.content_bias.as<const T>() + head_ * q.size;
    if (s.position_bias.given()) position_bias = s.position_bias.as<const T>() + head_ * q.size;
    if (s.first_key.given()) first_key = std::clamp(s.first_key.as<const std::int32_t>()[sequence_], 0, n_k);
    if (!s.dilation.empty()) step = std::min(s.dilation[static_cast<std::size_t>(head_)], n_k);
    if (s.span.given()) ramp = {s.span.as<const T>()[head_], static_cast<T>(s.longest_span), static_cast<T>(s.ramp)};
    reach = reach_of(n_k, static_cast<std::int32_t>(s.window), s.self, step, ramp);
  }

  // Blocks are numbered so that neighbours are of different classes; some of the last may be empty.
  std::int32_t blocks() const {
    const std::int32_t queries = (n_q + step - 1) / step;
    return step * ((queries + block_queries - 1) / block_queries);
  }
};

// Queries [begin, begin + count) of a class, the keys that any of them may see, and the numbers of entries between.
struct QueryBlock {
  ResidueClass in;
  std::int32_t begin, count, key_begin, keys, m_begin, m_end;

  template <class T>
  QueryBlock(const DistanceHead<T>& head, std::int32_t number)
      : in(residue_class(number % head.step, head.step, head.n_q, head.n_k, head.first_key)),
        begin(in.first_query + number / head.step * block_queries),
        count(std::clamp(in.entries - begin, 0, block_queries)),
        key_begin(std::max({in.first_key, begin - head.reach.end + 1, 0})),
        keys(head.reach.end > head.reach.begin ? std::max(begin + count - head.reach.begin - key_begin, 0) : 0),
        m_begin(std::max(0, begin - (key_begin + keys - 1))),
        m_end(std::max(m_begin, begin + count - key_begin)) {}

  std::int32_t query(const std::int32_t n_q, const std::int32_t n_k, std::int32_t r) const {
    return in.position(begin + r) - (n_k - n_q);
  }
};

// The most keys and distances of a block of any head.
inline std::int64_t most_keys(const DistanceScores& s) {
  const std::int64_t n_k = s.k.size(1);
  return std::min(n_k, s.window > 0 ? s.window + block_queries : n_k);
}

// One thread's matrices for scores; columns are the queries of a block.
template <class T>
struct ScoreSpace {
  T *content, *position;    // (d, queries): scale (q + u) and scale (q + v)
  T *scores, *by_distance;  // (keys, queries) and (distances, queries)
  T* weights;               // of m, from -block_queries on
  std::int64_t weight_count;

  ScoreSpace(const DistanceScores& s, Carver& carver) {
    const std::int64_t size = s.q.size(3), keys = most_keys(s);
    content = carver.take<T>(size * block_queries);
    position = carver.take<T>(size * block_queries);
    scores = carver.take<T>(keys * block_queries);
    by_distance = carver.take<T>(s.table.given() ? (keys + block_queries) * block_queries : 0);
    weight_count = s.k.size(1) + 3 * block_queries;
    weights = carver.take<T>(weight_count);
  }

  // The weights of a head; 0 where nothing is visible.
  void set_weights(const DistanceHead<T>& head) const {
    std::fill(weights, weights + weight_count, T(0));
    for (std::int32_t m = head.reach.begin; m < head.reach.end; ++m)
      weights[block_queries + m] = head.ramp.weight(m * head.step);
  }
  // The weights of one key for the queries of a block.
  const T* weights_of(const QueryBlock& block, std::int32_t key) const {
    return weights + block_queries + block.begin - (block.key_begin + key);
  }
};

// The rows of T that a block reads: one per m up to `own`, and the last row for all m from there on.
template <class T>
struct TableRows {
  std::int64_t own, rest;  // rows; rest is 0 or 1
  std::int64_t first, step, last;

  TableRows(const DistanceHead<T>& head, const QueryBlock& block) {
    const std::int32_t beyond = (head.distances - 1 + head.step - 1) / head.step;  // m from here on read the last row
    own = std::clamp(beyond, block.m_begin, block.m_end) - block.m_begin;
    rest = own < block.m_end - block.m_begin ? 1 : 0;
    first = std::int64_t{block.m_begin} * head.step;
    step = head.step;
    last = head.distances - 1;
  }
  // Calls f(first row of T, stride of rows, row of the block's matrix, count).
  template <class F>
  void each(F&& f) const {
    if (own > 0) f(first, step, std::int64_t{0}, own);
    if (rest > 0) f(last, std::int64_t{1}, own, rest);
  }
};

// Calls f(m's row of by_distance, query r, key b) for all pairs of a block but those with m < 0.
template <class T, class F>
void each_distance(const TableRows<T>& rows, const QueryBlock& block, F&& f) {
  const std::int64_t most = rows.own + rows.rest - 1;
  for (std::int32_t b = 0; b < block.keys; ++b) {
    const std::int32_t before = block.begin - block.key_begin - b;  // m of query 0
    for (std::int32_t r = std::max(0, -before); r < block.count; ++r)
      f(std::min<std::int64_t>(before + r - block.m_begin, most), r, b);
  }
}

// Reads the queries and computes `scores`, whose columns beyond the block's queries are 0.
template <class T>
void compute_scores(const DistanceHead<T>& head, const QueryBlock& block, const ScoreSpace<T>& space) {
  constexpr std::int64_t lanes = block_queries;
  const std::int64_t size = head.q.size;
  std::fill(space.content, space.content + size * lanes, T(0));
  std::fill(space.position, space.position + size * lanes, T(0));
  for (std::int32_t r = 0; r < block.count; ++r) {
    const T* q = head.q.at(block.query(head.n_q, head.n_k, r));
    for (std::int64_t c = 0; c < size; ++c) {
      space.content[c * lanes + r] = head.scale * (q[c] + (head.content_bias != nullptr ? head.content_bias[c] : T(0)));
      space.position[c * lanes + r] =
          head.scale * (q[c] + (head.position_bias != nullptr ? head.position_bias[c] : T(0)));
    }
  }
  if (block.keys == 0) return;
  const T* k = head.k.at(block.in.position(block.key_begin));
  multiply<Into::zero, T>({k, head.step * head.k.stride, 1}, space.content, lanes, space.scores, lanes, block.keys,
                          lanes, size);
  if (head.table == nullptr) return;
  const TableRows<T> rows(head, block);
  rows.each([&](std::int64_t first, std::int64_t step, std::int64_t at, std::int64_t count) {
    multiply<Into::zero, T>({head.table + first * head.table_stride, step * head.table_stride, 1}, space.position,
                            lanes, space.by_distance + at * lanes, lanes, count, lanes, size);
  });
  each_distance(rows, block, [&](std::int64_t row, std::int32_t r, std::int32_t b) {
    space.scores[b * lanes + r] += space.by_distance[row * lanes + r];
  });
}

// The number of threads that scratch must serve.
inline std::int64_t threads_of(std::int64_t units) { return std::min<std::int64_t>(omp_get_max_threads(), units); }

}  // namespace longstride::kernels::cpu
