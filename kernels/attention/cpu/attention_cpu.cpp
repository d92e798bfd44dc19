#include <cmath>

#include "kernels/attention/attention.h"
#include "kernels/attention/cpu/tiles.h"
#include "kernels/attention/pattern/tile_span.h"

namespace longstride::kernels::cpu {

namespace {

// One thread's tiles, for up to `lanes` queries.
template <class T>
struct ForwardSpace {
  T *rows, *q, *k, *v, *s, *acc;  // q and acc with queries in the lanes
  T *top, *sum, *shrink;          // per query: largest score so far, denominator relative to it, their last change
  Bounds<T> bounds;

  ForwardSpace(const AttentionArgs& args, Carver& carver) {
    const std::int64_t lanes = padded<T>(args.plan->tile.queries), keys = args.plan->tile.keys;
    const std::int64_t key_size = padded<T>(args.q.size(3)), value_size = padded<T>(args.v.size(3));
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

template <class T>
std::size_t thread_bytes(const AttentionArgs& args) {
  Carver carver(nullptr);
  const ForwardSpace<T> counted(args, carver);
  return carver.used();
}

// One query tile of one pass of one (sequence, head).
template <class T>
class QueryTile {
 public:
  QueryTile(const AttentionArgs& args, const WorkUnit& unit, const Pass& pass, const ForwardSpace<T>& space)
      : plan_(*args.plan),
        space_(space),
        q_(rows_of<const T>(args.q, unit.sequence, unit.head)),
        k_(rows_of<const T>(args.k, unit.sequence, unit.head)),
        v_(rows_of<const T>(args.v, unit.sequence, unit.head)),
        o_(rows_of<T>(args.o, unit.sequence, unit.head)),
        lse_(args.lse.as<T>() + (unit.sequence * args.lse.size(1) + unit.head) * args.lse.size(2)),
        pass_(pass),
        queries_(rows_within(pass.queries, unit.residue, plan_.n)),
        residue_(unit.residue),
        index_(unit.tile),
        tile_(tile_at(queries_, unit.tile, plan_.tile.queries)),
        key_ld_(padded<T>(q_.size)),
        value_ld_(padded<T>(v_.size)),
        lanes_(padded<T>(tile_.rows)) {
    if (tile_.rows == 0) return;
    gather(q_, queries_, tile_.begin, tile_.rows, static_cast<T>(args.scale), space_.rows, key_ld_, lanes_);
    transpose(space_.rows, key_ld_, lanes_, q_.size, space_.q, lanes_);
  }

  bool empty() const { return tile_.rows == 0; }

  void start() const {
    std::fill(space_.top, space_.top + lanes_, none);
    std::fill(space_.sum, space_.sum + lanes_, T(0));
    std::fill(space_.acc, space_.acc + v_.size * lanes_, T(0));
  }

  // Resumes from the o and lse of an earlier pass: a softmax whose largest score is lse and whose sum is 1.
  void resume() const {
    gather(o_, queries_, tile_.begin, tile_.rows, T(1), space_.rows, value_ld_, lanes_);
    transpose(space_.rows, value_ld_, lanes_, v_.size, space_.acc, lanes_);
    std::fill(space_.top, space_.top + lanes_, none);
    each_entry(queries_, tile_.begin, tile_.rows,
               [&](std::int32_t r, std::int32_t position) { space_.top[r] = std::max(lse_[position], none); });
    for (std::int64_t i = 0; i < lanes_; ++i) space_.sum[i] = space_.top[i] > none ? T(1) : T(0);
  }

  void attend(const Part& part) const {
    const RowSet keys = rows_within(part.keys, residue_, plan_.n);
    const TileRuns runs = key_runs(plan_, pass_, part, index_);
    if (!runs.empty()) space_.bounds.set(part, queries_, keys, tile_, lanes_);
    for (const TileRun& run : runs)
      for (std::int32_t t = run.begin; t < run.end; ++t) add_keys(keys, tile_at(keys, t, plan_.tile.keys), run.full);
  }

  void finish() const {
    for (std::int64_t i = 0; i < lanes_; ++i) space_.shrink[i] = space_.sum[i] > 0 ? T(1) / space_.sum[i] : T(0);
    scale_accumulator(0, lanes_);
    transpose(space_.acc, lanes_, v_.size, lanes_, space_.rows, value_ld_);
    scatter(space_.rows, value_ld_, queries_, tile_.begin, tile_.rows, o_);
    each_entry(queries_, tile_.begin, tile_.rows, [&](std::int32_t r, std::int32_t position) {
      lse_[position] = space_.top[r] + std::log(space_.sum[r]);  // -infinity when nothing was allowed
    });
  }

 private:
  void add_keys(const RowSet& set, Tile keys, bool full) const {
    if (keys.rows == 0) return;
    gather(k_, set, keys.begin, keys.rows, T(1), space_.k, k_.size);
    gather(v_, set, keys.begin, keys.rows, T(1), space_.v, v_.size);
    each_block(space_.bounds, tile_, keys, full, [&](const Block& block) {
      const auto [row, rows, lane, lanes] = block;
      T* s = space_.s + row * lanes_ + lane;
      multiply<Into::zero, T>({space_.k + row * k_.size, k_.size, 1}, space_.q + lane, lanes_, s, lanes_, rows, lanes,
                              k_.size);
      if (!full) mask(space_.s, lanes_, block, keys, space_.bounds);
      soften(block);
      multiply<Into::sum, T>({space_.v + row * v_.size, 1, v_.size}, s, lanes_, space_.acc + lane, lanes_, v_.size,
                             lanes, rows);
    });
  }

  // Turns scores into probabilities relative to the largest score so far, and rescales sum and acc to it.
  void soften(const Block& block) const {
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
      for (std::int32_t r = 0; r < block.rows; ++r)
        for (std::int64_t i = 0; i < w; ++i) {
          const T p = exp_of(s[r * lanes_ + i] - top[i]);
          s[r * lanes_ + i] = p;
          sum[i] += p;
        }
      std::copy_n(top, w, space_.top + x);
      std::copy_n(shrink, w, space_.shrink + x);
      std::copy_n(sum, w, space_.sum + x);
    }
    if (changed) scale_accumulator(block.first_lane, block.lanes);
  }

  void scale_accumulator(std::int64_t first_lane, std::int64_t lanes) const {
    for (std::int64_t d = 0; d < v_.size; ++d)
      for (std::int64_t x = first_lane; x < first_lane + lanes; x += lanes_of<T>) {
        T* acc = space_.acc + d * lanes_ + x;
        store(acc, load(acc) * load(space_.shrink + x));
      }
  }

  // The initial largest score. It is finite so that the exponentials of masked scores (-infinity) and of the first
  // rescaling are 0, never NaN.
  static constexpr T none = std::numeric_limits<T>::lowest();

  const AttentionPlan& plan_;
  const ForwardSpace<T>& space_;
  HeadRows<const T> q_, k_, v_;
  HeadRows<T> o_;
  T* lse_;
  const Pass& pass_;
  RowSet queries_;
  std::int32_t residue_, index_;
  Tile tile_;
  std::int64_t key_ld_, value_ld_, lanes_;
};

template <class T>
void attention_pass(const AttentionArgs& args, std::int32_t number) {
  const AttentionPlan& plan = *args.plan;
  const WorkList work(args.q.size(0), args.q.size(2), [&](std::int64_t head) -> HeadShare {
    const auto passes = plan.passes_of(head);
    if (number >= static_cast<std::int32_t>(passes.size())) return {};
    const Pass& pass = passes[static_cast<std::size_t>(number)];
    return {pass.classes, tiles_of(pass.queries, plan.tile.queries)};
  });
#pragma omp parallel
  {
    Carver carver(static_cast<std::byte*>(args.scratch.data()) + omp_get_thread_num() * thread_bytes<T>(args));
    const ForwardSpace<T> space(args, carver);
#pragma omp for schedule(dynamic, work.chunk())
    for (std::int64_t u = 0; u < work.size(); ++u) {
      const WorkUnit unit = work.at(u);
      const Pass& pass = plan.passes_of(unit.head)[static_cast<std::size_t>(number)];
      const QueryTile<T> tile(args, unit, pass, space);
      if (tile.empty()) continue;
      number == 0 ? tile.start() : tile.resume();
      for (const Part& part : plan.parts_of(pass)) tile.attend(part);
      tile.finish();
    }
  }
}

}  // namespace

std::size_t attention_scratch_bytes(const AttentionArgs& args) {
  std::size_t bytes = 0;
  with_float_type(args.q.dtype(), [&](auto zero) { bytes = thread_bytes<decltype(zero)>(args); });
  return bytes * static_cast<std::size_t>(omp_get_max_threads());
}

void attention(const AttentionArgs& args, const Launch&) {
  std::int32_t passes = 0;
  for (const HeadPlan& head : args.plan->heads) passes = std::max(passes, head.passes);
  for (std::int32_t number = 0; number < passes; ++number)
    with_float_type(args.q.dtype(), [&](auto zero) { attention_pass<decltype(zero)>(args, number); });
}

}  // namespace longstride::kernels::cpu
