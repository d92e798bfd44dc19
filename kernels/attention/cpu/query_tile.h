// Forward: the keys of a query tile, one key tile after the other under an online softmax. A term
// (kernels/attention/term) says which keys a query sees and what is added to scores.
#pragma once
#include <cmath>

#include "kernels/attention/cpu/tiles.h"
#include "kernels/attention/pattern/tile_span.h"
#include "kernels/attention/sink.h"

namespace longstride::kernels::cpu {

// One thread's tiles, for up to `lanes` queries.
template <class T>
struct ForwardSpace {
  T *rows, *q, *k, *v, *s, *acc;  // q and acc with queries in the lanes
  T *top, *sum, *shrink;          // per query: largest score so far, denominator relative to it, their last change
  Bounds<T> bounds;

  ForwardSpace(TileShape tile, const Tensor& q_view, const Tensor& v_view, Carver& carver) {
    const std::int64_t lanes = padded<T>(tile.queries), keys = tile.keys;
    const std::int64_t key_size = padded<T>(q_view.size(3)), value_size = padded<T>(v_view.size(3));
    rows = carver.take<T>(lanes * std::max(key_size, value_size));
    q = carver.take<T>(key_size * lanes);
    k = carver.take<T>(keys * key_size);
    v = carver.take<T>(keys * value_size);
    s = carver.take<T>(keys * lanes);
    acc = carver.take<T>(value_size * lanes);
    top = carver.take<T>(lanes);
    sum = carver.take<T>(lanes);
    shrink = carver.take<T>(lanes);
    bounds = {carver.take<T>(lanes), carver.take<T>(lanes)};
  }
};

// The rows of one (sequence, head).
template <class T>
struct ForwardRows {
  HeadRows<const T> q, k, v;
  HeadRows<T> o;
  T* lse;

  template <class Args>
  ForwardRows(const Args& args, const Tensor& q_view, const Tensor& k_view, std::int64_t sequence, std::int64_t head)
      : q(rows_of<const T>(q_view, sequence, head)),
        k(shared_rows_of<const T>(k_view, sequence, head, q_view.size(2))),
        v(shared_rows_of<const T>(args.v, sequence, head, q_view.size(2))),
        o(rows_of<T>(args.o, sequence, head)),
        lse(args.lse.template as<T>() + (sequence * args.lse.size(1) + head) * args.lse.size(2)) {}
};

// One query tile of one (sequence, head).
template <class T>
class QueryTile {
 public:
  // bias: added to q; null: none.
  QueryTile(const ForwardRows<T>& rows, const RowSet& queries, std::int32_t index, TileShape shape, T scale,
            const T* bias, const ForwardSpace<T>& space)
      : rows_(rows),
        space_(space),
        queries_(queries),
        shape_(shape),
        tile_(tile_at(queries, index, shape.queries)),
        key_ld_(padded<T>(rows.q.size)),
        value_ld_(padded<T>(rows.v.size)),
        lanes_(padded<T>(tile_.rows)) {
    if (tile_.rows == 0) return;
    gather_biased(rows_.q, queries_, tile_, scale, bias, space_.rows, key_ld_, lanes_);
    transpose(space_.rows, key_ld_, lanes_, rows_.q.size, space_.q, lanes_);
  }

  bool empty() const { return tile_.rows == 0; }

  void start() const {
    std::fill(space_.top, space_.top + lanes_, none);
    std::fill(space_.sum, space_.sum + lanes_, T(0));
    std::fill(space_.acc, space_.acc + rows_.v.size * lanes_, T(0));
  }

  // Resumes from the o and lse of an earlier pass: a softmax whose largest score is lse and whose sum is 1.
  void resume() const {
    gather(rows_.o, queries_, tile_.begin, tile_.rows, T(1), space_.rows, value_ld_, lanes_);
    transpose(space_.rows, value_ld_, lanes_, rows_.v.size, space_.acc, lanes_);
    std::fill(space_.top, space_.top + lanes_, none);
    each_entry(queries_, tile_.begin, tile_.rows,
               [&](std::int32_t r, std::int32_t position) { space_.top[r] = std::max(rows_.lse[position], none); });
    for (std::int64_t i = 0; i < lanes_; ++i) space_.sum[i] = space_.top[i] > none ? T(1) : T(0);
  }

  template <class Term>
  void attend(Term& term, const RowSet& keys, TileWalk walk) const {
    if constexpr (Term::given) term.load_queries(rows_.q, space_.q, queries_, tile_, lanes_);
    if (walk.more()) space_.bounds.set(term, queries_, tile_, lanes_);
    for (; walk.more(); walk.advance()) add_keys(term, keys, tile_at(keys, walk.tile(), shape_.keys), walk.full());
  }

  // sink: the head's logit; null: none.
  void finish(const T* sink) const {
    for (std::int64_t i = 0; i < lanes_; ++i) {
      space_.shrink[i] = space_.sum[i] > 0 ? T(1) / space_.sum[i] : T(0);
      space_.top[i] += std::log(space_.sum[i]);  // -infinity when nothing was allowed
      if (sink != nullptr) join_sink(*sink, space_.shrink[i], space_.top[i]);
    }
    scale_accumulator(0, lanes_);
    transpose(space_.acc, lanes_, rows_.v.size, lanes_, space_.rows, value_ld_);
    scatter(space_.rows, value_ld_, queries_, tile_.begin, tile_.rows, rows_.o);
    each_entry(queries_, tile_.begin, tile_.rows,
               [&](std::int32_t r, std::int32_t position) { rows_.lse[position] = space_.top[r]; });
  }

 private:
  template <class Term>
  void add_keys(const Term& term, const RowSet& set, Tile keys, bool full) const {
    if (keys.rows == 0) return;
    gather(rows_.k, set, keys.begin, keys.rows, T(1), space_.k, rows_.k.size);
    gather(rows_.v, set, keys.begin, keys.rows, T(1), space_.v, rows_.v.size);
    each_block(space_.bounds, tile_, keys, full, [&](const Block& block) {
      const auto [row, rows, lane, lanes] = block;
      T* s = space_.s + row * lanes_ + lane;
      multiply<Into::zero, T>({space_.k + row * rows_.k.size, rows_.k.size, 1}, space_.q + lane, lanes_, s, lanes_,
                              rows, lanes, rows_.k.size);
      if constexpr (Term::given) term.add_scores(block, keys, space_.s, lanes_);
      if (!full) mask(space_.s, lanes_, block, keys, space_.bounds);
      soften(term, block, keys);
      if constexpr (Term::weighs) term.drop(block, keys, space_.s, lanes_);
      multiply<Into::sum, T>({space_.v + row * rows_.v.size, 1, rows_.v.size}, s, lanes_, space_.acc + lane, lanes_,
                             rows_.v.size, lanes, rows);
    });
  }

  // Turns scores into probabilities relative to the largest score so far, and rescales sum and acc to it.
  template <class Term>
  void soften(const Term& term, const Block& block, Tile keys) const {
    constexpr std::int64_t w = lanes_of<T>;
    bool changed = false;
    for (std::int64_t x = block.first_lane; x < block.first_lane + block.lanes; x += w) {
      T* __restrict s = space_.s + block.first_row * lanes_ + x;
      const Vector<T> before = load(space_.top + x);
      Vector<T> largest = before;
      for (std::int32_t r = 0; r < block.rows; ++r) {
        const Vector<T> score = load(s + r * lanes_);
        largest = score > largest ? score : largest;
      }
      T top[w], shrink[w], sum[w];
      store(top, largest);
      store(shrink, before - largest);
      for (std::int64_t i = 0; i < w; ++i) {
        changed |= shrink[i] < 0;
        shrink[i] = exp_of(shrink[i]);
        sum[i] = space_.sum[x + i] * shrink[i];
      }
      for (std::int32_t r = 0; r < block.rows; ++r) {
        const T* weights = term.weights_of(keys.begin + block.first_row + r, x);
        for (std::int64_t i = 0; i < w; ++i) {
          const T p = exp_of(s[r * lanes_ + i] - top[i]) * (Term::weighs ? weights[i] : T(1));
          s[r * lanes_ + i] = p;
          sum[i] += p;
        }
      }
      std::copy_n(top, w, space_.top + x);
      std::copy_n(shrink, w, space_.shrink + x);
      std::copy_n(sum, w, space_.sum + x);
    }
    if (changed) scale_accumulator(block.first_lane, block.lanes);
  }

  void scale_accumulator(std::int64_t first_lane, std::int64_t lanes) const {
    for (std::int64_t d = 0; d < rows_.v.size; ++d)
      for (std::int64_t x = first_lane; x < first_lane + lanes; x += lanes_of<T>) {
        T* acc = space_.acc + d * lanes_ + x;
        store(acc, load(acc) * load(space_.shrink + x));
      }
  }

  // The initial largest score. It is finite so that the exponentials of masked scores (-infinity) and of the first
  // rescaling are 0, never NaN.
  static constexpr T none = std::numeric_limits<T>::lowest();

  ForwardRows<T> rows_;
  const ForwardSpace<T>& space_;
  RowSet queries_;
  TileShape shape_;
  Tile tile_;
  std::int64_t key_ld_, value_ld_, lanes_;
};

}  // namespace longstride::kernels::cpu
