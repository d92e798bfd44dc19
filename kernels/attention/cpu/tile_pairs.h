// Backward: with P = exp(S - lse) and D_i = sum_d dO_id O_id:  dV = P^T dO,  dS = P (dO V^T - D),  dQ = scale dS K,
// dK = scale dS^T Q. The lse covers all parts together, so every part runs separately and adds to the gradients. A term
// (kernels/attention/term) says which keys a query sees, what is added to scores, and takes its own gradients.
#pragma once
#include "kernels/attention/cpu/tiles.h"
#include "kernels/attention/pattern/tile_span.h"

namespace longstride::kernels::cpu {

// One thread's tiles, named after the matrix whose rows they hold; in those ending in _t the queries are in the lanes.
template <class T>
struct BackwardSpace {
  T *q, *dout, *q_t, *dout_t, *dq_t;  // query side; q is scaled
  T *k, *v, *dk, *dv;                 // key side
  T *p_t, *ds_t;                      // (keys, queries)
  T *lse, *delta;
  Bounds<T> bounds;

  BackwardSpace(TileShape tile, const Tensor& q_view, const Tensor& v_view, Carver& carver) {
    const std::int64_t queries = padded<T>(tile.queries), keys = tile.keys;
    const std::int64_t key_size = padded<T>(q_view.size(3)), value_size = padded<T>(v_view.size(3));
    q = carver.take<T>(queries * key_size);
    dout = carver.take<T>(queries * value_size);
    q_t = carver.take<T>(queries * key_size);
    dout_t = carver.take<T>(queries * value_size);
    dq_t = carver.take<T>(queries * key_size);
    k = carver.take<T>(keys * key_size);
    v = carver.take<T>(keys * value_size);
    dk = carver.take<T>(keys * key_size);
    dv = carver.take<T>(keys * value_size);
    p_t = carver.take<T>(keys * queries);
    ds_t = carver.take<T>(keys * queries);
    lse = carver.take<T>(queries);
    delta = carver.take<T>(queries);
    bounds = {carver.take<T>(queries), carver.take<T>(queries)};
  }
};

// The rows of one (sequence, head), and delta of all.
template <class T>
struct BackwardRows {
  HeadRows<const T> q, k, v, dout;
  HeadRows<T> dq, dk, dv;
  const T *lse, *delta;

  template <class Args>
  BackwardRows(const Args& args, const Tensor& q_view, const Tensor& k_view, const T* deltas, std::int64_t sequence,
               std::int64_t head)
      : q(rows_of<const T>(q_view, sequence, head)),
        k(shared_rows_of<const T>(k_view, sequence, head, q_view.size(2))),
        v(shared_rows_of<const T>(args.v, sequence, head, q_view.size(2))),
        dout(rows_of<const T>(args.dout, sequence, head)),
        dq(rows_of<T>(args.dq, sequence, head)),
        dk(rows_of<T>(args.dk, sequence, head)),
        dv(rows_of<T>(args.dv, sequence, head)) {
    const std::int64_t row = (sequence * args.lse.size(1) + head) * args.lse.size(2);
    lse = args.lse.template as<const T>() + row;
    delta = deltas + row;
  }
};

// One class of one (sequence, head).
template <class T, class Term>
class TilePairs {
 public:
  // first: overwrites dQ, to which other classes and parts add; starts_keys: the same for dK and dV.
  TilePairs(const BackwardRows<T>& rows, Term& term, const RowSet& queries, const RowSet& keys, TileShape shape,
            T scale, bool first, bool starts_keys, const BackwardSpace<T>& space)
      : rows_(rows),
        term_(term),
        queries_(queries),
        keys_(keys),
        shape_(shape),
        scale_(scale),
        first_(first),
        starts_keys_(starts_keys),
        space_(space),
        key_ld_(padded<T>(rows.q.size)),
        value_ld_(padded<T>(rows.v.size)) {}

  // dQ of one query tile and, if asked for, what the tile adds to dK and dV. Key tiles from `seen` on have not been
  // visited yet: the ends of the rows never decrease.
  void walk_keys(std::int32_t tile, TileWalk walk, std::int32_t seen, bool with_keys) {
    if (!load_queries(tile)) return;
    std::fill(space_.dq_t, space_.dq_t + rows_.q.size * lanes_, T(0));
    for (; walk.more(); walk.advance()) {
      const bool starts = starts_keys_ && walk.tile() >= seen;
      if (!load_keys(walk.tile(), with_keys, starts)) continue;
      each_block(space_.bounds, query_tile_, key_tile_, walk.full(), [&](const Block& block) {
        score(block, walk.full());
        add_to_queries(block);
        if (with_keys) add_to_keys(block);
      });
      if (with_keys) store_keys();
    }
    store_queries();
  }

  // dK and dV of one key tile.
  void walk_queries(std::int32_t tile, TileWalk walk) {
    if (!load_keys(tile, true, starts_keys_)) return;
    for (; walk.more(); walk.advance()) {
      if (!load_queries(walk.tile())) continue;
      each_block(space_.bounds, query_tile_, key_tile_, walk.full(), [&](const Block& block) {
        score(block, walk.full());
        add_to_keys(block);
      });
    }
    store_keys();
  }

 private:
  bool load_queries(std::int32_t index) {
    query_tile_ = tile_at(queries_, index, shape_.queries);
    const auto [begin, rows] = query_tile_;
    if (rows == 0) return false;
    lanes_ = padded<T>(rows);
    gather_biased(rows_.q, queries_, query_tile_, scale_, term_.content_bias(), space_.q, key_ld_, lanes_);
    gather(rows_.dout, queries_, begin, rows, T(1), space_.dout, value_ld_, lanes_);
    transpose(space_.q, key_ld_, lanes_, rows_.q.size, space_.q_t, lanes_);
    transpose(space_.dout, value_ld_, lanes_, rows_.dout.size, space_.dout_t, lanes_);
    constexpr T infinity = std::numeric_limits<T>::infinity();
    std::fill(space_.lse, space_.lse + lanes_, infinity);  // P = 0 where nothing was allowed, and beyond the rows
    std::fill(space_.delta, space_.delta + lanes_, T(0));
    each_entry(queries_, begin, rows, [&](std::int32_t r, std::int32_t position) {
      if (rows_.lse[position] > -infinity) space_.lse[r] = rows_.lse[position];
      space_.delta[r] = rows_.delta[position];
    });
    space_.bounds.set(term_, queries_, query_tile_, lanes_);
    if constexpr (Term::given) term_.load_queries(rows_.q, space_.q_t, queries_, query_tile_, lanes_);
    return true;
  }

  bool load_keys(std::int32_t index, bool with_gradients, bool starts) {
    key_tile_ = tile_at(keys_, index, shape_.keys);
    const auto [begin, rows] = key_tile_;
    if (rows == 0) return false;
    gather(rows_.k, keys_, begin, rows, T(1), space_.k, key_ld_);
    gather(rows_.v, keys_, begin, rows, T(1), space_.v, value_ld_);
    if (with_gradients && starts) {
      std::fill(space_.dk, space_.dk + rows * key_ld_, T(0));
      std::fill(space_.dv, space_.dv + rows * value_ld_, T(0));
    } else if (with_gradients) {
      gather(rows_.dk, keys_, begin, rows, T(1), space_.dk, key_ld_);
      gather(rows_.dv, keys_, begin, rows, T(1), space_.dv, value_ld_);
    }
    return true;
  }

  // P and dS of a block of the loaded tiles.
  void score(const Block& block, bool full) const {
    const auto [row, rows, lane, lanes] = block;
    const std::int64_t corner = row * lanes_ + lane;
    multiply<Into::zero, T>({space_.k + row * key_ld_, key_ld_, 1}, space_.q_t + lane, lanes_, space_.p_t + corner,
                            lanes_, rows, lanes, rows_.q.size);
    multiply<Into::zero, T>({space_.v + row * value_ld_, value_ld_, 1}, space_.dout_t + lane, lanes_,
                            space_.ds_t + corner, lanes_, rows, lanes, rows_.v.size);
    if constexpr (Term::given) term_.add_scores(block, key_tile_, space_.p_t, lanes_);
    if (!full) mask(space_.p_t, lanes_, block, key_tile_, space_.bounds);
    if constexpr (Term::weighs)
      return term_.differentiate(block, key_tile_, space_.p_t, space_.ds_t, space_.lse, space_.delta, lanes_);
    constexpr std::int64_t w = lanes_of<T>;
    for (std::int64_t x = lane; x < lane + lanes; x += w) {
      T* __restrict p = space_.p_t + row * lanes_ + x;
      T* __restrict ds = space_.ds_t + row * lanes_ + x;
      const T* __restrict lse = space_.lse + x;
      const T* __restrict delta = space_.delta + x;
      for (std::int32_t r = 0; r < rows; ++r)
        for (std::int64_t i = 0; i < w; ++i) {
          const T probability = exp_of(p[r * lanes_ + i] - lse[i]);
          p[r * lanes_ + i] = probability;
          ds[r * lanes_ + i] = probability * (ds[r * lanes_ + i] - delta[i]);
        }
    }
  }

  void add_to_queries(const Block& block) const {
    const auto [row, rows, lane, lanes] = block;
    multiply<Into::sum, T>({space_.k + row * key_ld_, 1, key_ld_}, space_.ds_t + row * lanes_ + lane, lanes_,
                           space_.dq_t + lane, lanes_, rows_.q.size, lanes, rows);
    if constexpr (Term::given) term_.add_gradients(block, key_tile_, space_.ds_t, lanes_);
  }

  void add_to_keys(const Block& block) const {
    const std::int64_t corner = block.first_row * lanes_ + block.first_lane;
    const std::int64_t queries = std::min(block.lanes, query_tile_.rows - block.first_lane);
    multiply<Into::sum, T>({space_.p_t + corner, lanes_, 1}, space_.dout + block.first_lane * value_ld_, value_ld_,
                           space_.dv + block.first_row * value_ld_, value_ld_, block.rows, value_ld_, queries);
    multiply<Into::sum, T>({space_.ds_t + corner, lanes_, 1}, space_.q + block.first_lane * key_ld_, key_ld_,
                           space_.dk + block.first_row * key_ld_, key_ld_, block.rows, key_ld_, queries);
  }

  void store_keys() const {
    scatter(space_.dk, key_ld_, keys_, key_tile_.begin, key_tile_.rows, rows_.dk);
    scatter(space_.dv, value_ld_, keys_, key_tile_.begin, key_tile_.rows, rows_.dv);
  }

  void store_queries() const {
    if constexpr (Term::given) term_.finish_queries(space_.dq_t, lanes_);
    transpose(space_.dq_t, lanes_, rows_.q.size, lanes_, space_.q, key_ld_);
    each_entry(queries_, query_tile_.begin, query_tile_.rows, [&](std::int32_t r, std::int32_t position) {
      T* __restrict to = rows_.dq.at(position);
      const T* __restrict from = space_.q + r * key_ld_;
      if (first_)
        for (std::int64_t d = 0; d < rows_.dq.size; ++d) to[d] = scale_ * from[d];
      else
        for (std::int64_t d = 0; d < rows_.dq.size; ++d) to[d] += scale_ * from[d];
    });
  }

  const BackwardRows<T>& rows_;
  Term& term_;
  RowSet queries_, keys_;
  TileShape shape_;
  T scale_;
  bool first_, starts_keys_;
  const BackwardSpace<T>& space_;
  std::int64_t key_ld_, value_ld_, lanes_ = 0;
  Tile query_tile_{}, key_tile_{};
};

}  // namespace longstride::kernels::cpu
