// With P = exp(S - lse) and D_i = sum_d dO_id O_id:  dV = P^T dO,  dS = P (dO V^T - D),  dQ = scale dS K,
// dK = scale dS^T Q. The lse covers all parts together, so every part runs separately and adds to the gradients.
//
// If there are enough (sequence, head, class) triples for all threads, a thread visits all tiles of one triple and
// computes each tile's P and dS once. Otherwise one loop over query tiles computes dQ and another over key tiles
// computes dK and dV. Both add the same numbers in the same order, so the choice, which depends on the number of
// threads, does not change the result.
#include "kernels/attention/attention.h"
#include "kernels/attention/cpu/tiles.h"
#include "kernels/attention/pattern/tile_span.h"

namespace longstride::kernels::cpu {

namespace {

// One thread's tiles, named after the matrix whose rows they hold; in those ending in _t the queries are in the lanes.
template <class T>
struct BackwardSpace {
  T *q, *dout, *q_t, *dout_t, *dq_t;  // query side; q is scaled
  T *k, *v, *dk, *dv;                 // key side
  T *p_t, *ds_t;                      // (keys, queries)
  T *lse, *delta;
  Bounds<T> bounds;

  BackwardSpace(const AttentionBackwardArgs& args, Carver& carver) {
    const std::int64_t queries = padded<T>(args.plan->tile.queries), keys = args.plan->tile.keys;
    const std::int64_t key_size = padded<T>(args.q.size(3)), value_size = padded<T>(args.v.size(3));
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

template <class T>
std::size_t thread_bytes(const AttentionBackwardArgs& args) {
  Carver carver(nullptr);
  const BackwardSpace<T> counted(args, carver);
  return carver.used();
}

// D, one number per row of lse, at the front of the workspace.
template <class T>
std::size_t delta_bytes(const AttentionBackwardArgs& args) {
  Carver carver(nullptr);
  carver.take<T>(args.q.size(0) * args.q.size(2) * args.q.size(1));
  return carver.used();
}

// The `number`-th part of a head, counted over its passes; null when it has fewer.
struct NumberedPart {
  const Pass* pass = nullptr;
  const Part* part = nullptr;
};
NumberedPart part_of(const AttentionPlan& plan, std::int64_t head, std::int32_t number) {
  for (const Pass& pass : plan.passes_of(head)) {
    if (number < pass.parts) return {&pass, &plan.parts_of(pass)[static_cast<std::size_t>(number)]};
    number -= pass.parts;
  }
  return {};
}

// Every query may attend to itself, so every key tile is reached.
bool reaches_every_key(const Part& part) { return part.kind != PartKind::fixed_summary; }

// One class of one part of one (sequence, head).
template <class T>
class ResidueClass {
 public:
  ResidueClass(const AttentionBackwardArgs& args, const WorkUnit& unit, NumberedPart part, bool first, const T* delta,
               const BackwardSpace<T>& space)
      : plan_(*args.plan),
        pass_(*part.pass),
        part_(*part.part),
        space_(space),
        scale_(static_cast<T>(args.scale)),
        first_(first),
        starts_keys_(first && reaches_every_key(part_)),
        q_(rows_of<const T>(args.q, unit.sequence, unit.head)),
        k_(rows_of<const T>(args.k, unit.sequence, unit.head)),
        v_(rows_of<const T>(args.v, unit.sequence, unit.head)),
        dout_(rows_of<const T>(args.dout, unit.sequence, unit.head)),
        dq_(rows_of<T>(args.dq, unit.sequence, unit.head)),
        dk_(rows_of<T>(args.dk, unit.sequence, unit.head)),
        dv_(rows_of<T>(args.dv, unit.sequence, unit.head)),
        queries_(rows_within(part.pass->queries, unit.residue, plan_.n)),
        keys_(rows_within(part.part->keys, unit.residue, plan_.n)),
        key_ld_(padded<T>(q_.size)),
        value_ld_(padded<T>(v_.size)) {
    const std::int64_t row = (unit.sequence * args.q.size(2) + unit.head) * plan_.n;
    lse_ = args.lse.as<T>() + row;
    delta_ = delta + row;
  }

  // dQ of one query tile and, if asked for, what the tile adds to dK and dV.
  void walk_keys(std::int32_t tile, bool with_keys) {
    if (!load_queries(tile)) return;
    std::fill(space_.dq_t, space_.dq_t + q_.size * lanes_, T(0));
    // Key tiles from here on have not been visited yet: the ends of the rows never decrease.
    const std::int32_t seen = tile > 0 ? key_tiles_of(part_, pass_.queries, part_.keys, plan_.tile, tile - 1).end : 0;
    for (const TileRun& run : key_runs(plan_, pass_, part_, tile))
      for (std::int32_t t = run.begin; t < run.end; ++t) {
        const bool starts = starts_keys_ && t >= seen;
        if (!load_keys(t, with_keys, starts)) continue;
        each_block(space_.bounds, query_tile_, key_tile_, run.full, [&](const Block& block) {
          score(block, run.full);
          add_to_queries(block);
          if (with_keys) add_to_keys(block);
        });
        if (with_keys) store_keys();
      }
    store_queries();
  }

  // dK and dV of one key tile.
  void walk_queries(std::int32_t tile) {
    if (!load_keys(tile, true, starts_keys_)) return;
    for (const TileRun& run : query_runs(plan_, pass_, part_, tile))
      for (std::int32_t t = run.begin; t < run.end; ++t) {
        if (!load_queries(t)) continue;
        each_block(space_.bounds, query_tile_, key_tile_, run.full, [&](const Block& block) {
          score(block, run.full);
          add_to_keys(block);
        });
      }
    store_keys();
  }

 private:
  bool load_queries(std::int32_t index) {
    query_tile_ = tile_at(queries_, index, plan_.tile.queries);
    const auto [begin, rows] = query_tile_;
    if (rows == 0) return false;
    lanes_ = padded<T>(rows);
    gather(q_, queries_, begin, rows, scale_, space_.q, key_ld_, lanes_);
    gather(dout_, queries_, begin, rows, T(1), space_.dout, value_ld_, lanes_);
    transpose(space_.q, key_ld_, lanes_, q_.size, space_.q_t, lanes_);
    transpose(space_.dout, value_ld_, lanes_, dout_.size, space_.dout_t, lanes_);
    constexpr T infinity = std::numeric_limits<T>::infinity();
    std::fill(space_.lse, space_.lse + lanes_, infinity);  // P = 0 where nothing was allowed, and beyond the rows
    std::fill(space_.delta, space_.delta + lanes_, T(0));
    each_entry(queries_, begin, rows, [&](std::int32_t r, std::int32_t position) {
      if (lse_[position] > -infinity) space_.lse[r] = lse_[position];
      space_.delta[r] = delta_[position];
    });
    space_.bounds.set(part_, queries_, keys_, query_tile_, lanes_);
    return true;
  }

  bool load_keys(std::int32_t index, bool with_gradients, bool starts) {
    key_tile_ = tile_at(keys_, index, plan_.tile.keys);
    const auto [begin, rows] = key_tile_;
    if (rows == 0) return false;
    gather(k_, keys_, begin, rows, T(1), space_.k, key_ld_);
    gather(v_, keys_, begin, rows, T(1), space_.v, value_ld_);
    if (with_gradients && starts) {
      std::fill(space_.dk, space_.dk + rows * key_ld_, T(0));
      std::fill(space_.dv, space_.dv + rows * value_ld_, T(0));
    } else if (with_gradients) {
      gather(dk_, keys_, begin, rows, T(1), space_.dk, key_ld_);
      gather(dv_, keys_, begin, rows, T(1), space_.dv, value_ld_);
    }
    return true;
  }

  // P and dS of a block of the loaded tiles.
  void score(const Block& block, bool full) const {
    const auto [row, rows, lane, lanes] = block;
    const std::int64_t corner = row * lanes_ + lane;
    multiply<Into::zero, T>({space_.k + row * key_ld_, key_ld_, 1}, space_.q_t + lane, lanes_, space_.p_t + corner,
                            lanes_, rows, lanes, q_.size);
    multiply<Into::zero, T>({space_.v + row * value_ld_, value_ld_, 1}, space_.dout_t + lane, lanes_,
                            space_.ds_t + corner, lanes_, rows, lanes, v_.size);
    if (!full) mask(space_.p_t, lanes_, block, key_tile_, space_.bounds);
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
                           space_.dq_t + lane, lanes_, q_.size, lanes, rows);
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
    scatter(space_.dk, key_ld_, keys_, key_tile_.begin, key_tile_.rows, dk_);
    scatter(space_.dv, value_ld_, keys_, key_tile_.begin, key_tile_.rows, dv_);
  }

  void store_queries() const {
    transpose(space_.dq_t, lanes_, q_.size, lanes_, space_.q, key_ld_);
    each_entry(queries_, query_tile_.begin, query_tile_.rows, [&](std::int32_t r, std::int32_t position) {
      T* __restrict to = dq_.at(position);
      const T* __restrict from = space_.q + r * key_ld_;
      if (first_)
        for (std::int64_t d = 0; d < dq_.size; ++d) to[d] = scale_ * from[d];
      else
        for (std::int64_t d = 0; d < dq_.size; ++d) to[d] += scale_ * from[d];
    });
  }

  const AttentionPlan& plan_;
  const Pass& pass_;
  const Part& part_;
  const BackwardSpace<T>& space_;
  T scale_;
  bool first_;        // overwrites dQ; the other parts add to it
  bool starts_keys_;  // the same for dK and dV
  HeadRows<const T> q_, k_, v_, dout_;
  HeadRows<T> dq_, dk_, dv_;
  const T* lse_;
  const T* delta_;
  RowSet queries_, keys_;
  std::int64_t key_ld_, value_ld_, lanes_ = 0;
  Tile query_tile_{}, key_tile_{};
};

// D of every row; zeroes dK and dV where the first part does not reach all keys.
template <class T>
void prepare(const AttentionBackwardArgs& args, T* delta) {
  const std::int64_t n = args.q.size(1), heads = args.q.size(2);
#pragma omp parallel for
  for (std::int64_t row = 0; row < args.q.size(0) * n; ++row) {
    const std::int64_t sequence = row / n, position = row % n;
    for (std::int64_t head = 0; head < heads; ++head) {
      const auto o = rows_of<const T>(args.o, sequence, head), dout = rows_of<const T>(args.dout, sequence, head);
      delta[(sequence * heads + head) * n + position] = dot(o.at(position), dout.at(position), o.size);
      if (reaches_every_key(*part_of(*args.plan, head, 0).part)) continue;
      const auto dk = rows_of<T>(args.dk, sequence, head), dv = rows_of<T>(args.dv, sequence, head);
      std::fill(dk.at(position), dk.at(position) + dk.size, T(0));
      std::fill(dv.at(position), dv.at(position) + dv.size, T(0));
    }
  }
}

// The loop to which a unit of work belongs.
enum class Traversal { whole, by_query, by_key };

template <class T>
void run_part(const AttentionBackwardArgs& args, std::int32_t number, Traversal order, const T* delta) {
  const AttentionPlan& plan = *args.plan;
  const WorkList work(args.q.size(0), args.q.size(2), [&](std::int64_t head) -> HeadShare {
    const NumberedPart part = part_of(plan, head, number);
    if (part.part == nullptr) return {};
    if (order == Traversal::whole) return {part.pass->classes, 1};
    return {part.pass->classes, order == Traversal::by_query ? tiles_of(part.pass->queries, plan.tile.queries)
                                                             : tiles_of(part.part->keys, plan.tile.keys)};
  });
#pragma omp parallel
  {
    const std::size_t offset =
        delta_bytes<T>(args) + static_cast<std::size_t>(omp_get_thread_num()) * thread_bytes<T>(args);
    Carver carver(static_cast<std::byte*>(args.scratch.data()) + offset);
    const BackwardSpace<T> space(args, carver);
#pragma omp for schedule(dynamic, work.chunk())
    for (std::int64_t u = 0; u < work.size(); ++u) {
      const WorkUnit unit = work.at(u);
      const NumberedPart part = part_of(plan, unit.head, number);
      ResidueClass<T> residue(args, unit, part, number == 0, delta, space);
      if (order == Traversal::by_key) {
        residue.walk_queries(unit.tile);
      } else if (order == Traversal::by_query) {
        residue.walk_keys(unit.tile, false);
      } else {
        for (std::int32_t t = 0; t < tiles_of(part.pass->queries, plan.tile.queries); ++t) residue.walk_keys(t, true);
      }
    }
  }
}

template <class T>
void backward(const AttentionBackwardArgs& args) {
  const AttentionPlan& plan = *args.plan;
  T* delta = static_cast<T*>(args.scratch.data());
  prepare(args, delta);
  for (std::int32_t number = 0;; ++number) {
    std::int64_t classes = 0;
    for (std::int64_t head = 0; head < args.q.size(2); ++head) {
      const NumberedPart part = part_of(plan, head, number);
      if (part.part != nullptr) classes += part.pass->classes;
    }
    if (classes == 0) return;
    if (args.q.size(0) * classes >= omp_get_max_threads()) {
      run_part(args, number, Traversal::whole, delta);
    } else {
      run_part(args, number, Traversal::by_query, delta);
      run_part(args, number, Traversal::by_key, delta);
    }
  }
}

}  // namespace

std::size_t attention_scratch_bytes(const AttentionBackwardArgs& args) {
  std::size_t bytes = 0;
  with_float_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    bytes = delta_bytes<T>(args) + thread_bytes<T>(args) * static_cast<std::size_t>(omp_get_max_threads());
  });
  return bytes;
}

void attention_backward(const AttentionBackwardArgs& args, const Launch&) {
  with_float_type(args.q.dtype(), [&](auto zero) { backward<decltype(zero)>(args); });
}

}  // namespace longstride::kernels::cpu
