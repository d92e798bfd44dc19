// The loops of tile_pairs.h over a plan.
//
// If there are enough (sequence, head, class) triples for all threads, a thread visits all tiles of one triple and
// computes each tile's P and dS once. Otherwise one loop over query tiles computes dQ and another over key tiles
// computes dK and dV. Both add the same numbers in the same order, so the choice, which depends on the number of
// threads, does not change the result.
#include <cmath>

#include "kernels/attention/attention.h"
#include "kernels/attention/cpu/tile_pairs.h"
#include "kernels/attention/grouped_gradients.h"
#include "kernels/attention/term/labels_cpu.h"

namespace longstride::kernels::cpu {

namespace {

template <class T, class Term>
std::size_t thread_bytes(const AttentionBackwardArgs& args) {
  Carver carver(nullptr);
  const BackwardSpace<T> counted(args.plan->tile, args.q, args.v, carver);
  const typename Term::Space of_term(args.labels, args.plan->tile, carver);
  return carver.used();
}

// Numbers per row of lse that all threads share, at the front of the workspace.
template <class T>
struct Shared {
  T *delta, *by_label = nullptr;  // D, and the gradients of scores by label, if the table's gradient is wanted
  std::size_t bytes;

  explicit Shared(const AttentionBackwardArgs& args) {
    Carver carver(args.scratch.data());
    delta = carver.take<T>(args.lse.count());
    if (args.dtable.given()) by_label = carver.take<T>(args.lse.count() * args.labels.count());
    bytes = carver.used();
  }
};

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

// True if every key tile is reached: every position then has a query, which sees it.
bool reaches_every_key(const AttentionBackwardArgs& args, const Part& part) {
  return sees_itself(part.kind) && args.plan->queries >= args.plan->n && !args.bounds.given() && !args.lists.given();
}

// D of every row; zeroes dK and dV where the first part does not reach all keys.
template <class T>
void prepare(const AttentionBackwardArgs& args, T* delta) {
  const std::int64_t queries = args.q.size(1), keys = args.k.size(1), heads = args.q.size(2);
  const std::int64_t rows = std::max(queries, keys);
#pragma omp parallel for
  for (std::int64_t row = 0; row < args.q.size(0) * rows; ++row) {
    const std::int64_t sequence = row / rows, position = row % rows;
    for (std::int64_t head = 0; head < heads; ++head) {
      const auto o = rows_of<const T>(args.o, sequence, head), dout = rows_of<const T>(args.dout, sequence, head);
      if (position < queries)
        delta[(sequence * heads + head) * queries + position] = dot(o.at(position), dout.at(position), o.size);
      if (position >= keys || reaches_every_key(args, *part_of(*args.plan, head, 0).part)) continue;
      const auto dk = rows_of<T>(args.dk, sequence, head), dv = rows_of<T>(args.dv, sequence, head);
      std::fill(dk.at(position), dk.at(position) + dk.size, T(0));
      std::fill(dv.at(position), dv.at(position) + dv.size, T(0));
    }
  }
}

// The loop to which a unit of work belongs.
enum class Traversal { whole, by_query, by_key };

template <class T, class Term>
void run_part(const AttentionBackwardArgs& args, std::int32_t number, Traversal order, const Shared<T>& shared) {
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
        shared.bytes + static_cast<std::size_t>(omp_get_thread_num()) * thread_bytes<T, Term>(args);
    Carver carver(static_cast<std::byte*>(args.scratch.data()) + offset);
    const BackwardSpace<T> space(plan.tile, args.q, args.v, carver);
    typename Term::Space of_term(args.labels, plan.tile, carver);
    if constexpr (Term::given) of_term.sums = shared.by_label;
#pragma omp for schedule(dynamic, work.chunk())
    for (std::int64_t u = 0; u < work.size(); ++u) {
      const WorkUnit unit = work.at(u);
      const NumberedPart part = part_of(plan, unit.head, number);
      const Pass& pass = *part.pass;
      const BackwardRows<T> rows(args, args.q, args.k, shared.delta, unit.sequence, unit.head);
      Term term(args, pass, *part.part, unit, of_term);
      TilePairs<T, Term> pairs(rows, term, term.queries, term.keys, plan.tile, static_cast<T>(args.scale), number == 0,
                               number == 0 && reaches_every_key(args, term.part), space);
      const auto walk_keys = [&](std::int32_t t, bool with_keys) {
        const std::int32_t seen = t > 0 ? term.key_tiles(t - 1).end : 0;
        pairs.walk_keys(t, term.walk_keys(t), seen, with_keys);
      };
      if (order == Traversal::by_key) {
        pairs.walk_queries(unit.tile, term.walk_queries(unit.tile));
      } else if (order == Traversal::by_query) {
        walk_keys(unit.tile, false);
      } else {
        for (std::int32_t t = 0; t < tiles_of(pass.queries, plan.tile.queries); ++t) walk_keys(t, true);
      }
    }
  }
}

template <class T>
void add_sink_gradient(const AttentionBackwardArgs& args, const T* delta) {
  const std::int64_t heads = args.q.size(2), queries = args.q.size(1);
  const T* lse = args.lse.as<const T>();
#pragma omp parallel for
  for (std::int64_t head = 0; head < heads; ++head) {
    T sum = 0;
    for (std::int64_t sequence = 0; sequence < args.q.size(0); ++sequence)
      for (std::int64_t row = (sequence * heads + head) * queries, end = row + queries; row < end; ++row)
        sum += std::exp(args.sink.as<const T>()[head] - lse[row]) * delta[row];
    args.dsink.as<T>()[head] -= sum;
  }
}

template <class T, class Term>
void backward(const AttentionBackwardArgs& args) {
  const AttentionPlan& plan = *args.plan;
  const Shared<T> shared(args);
  prepare(args, shared.delta);
  if (args.dsink.given()) add_sink_gradient(args, shared.delta);
  if (shared.by_label != nullptr) std::fill_n(shared.by_label, args.lse.count() * args.labels.count(), T(0));
  for (std::int32_t number = 0;; ++number) {
    std::int64_t classes = 0;
    for (std::int64_t head = 0; head < args.q.size(2); ++head) {
      const NumberedPart part = part_of(plan, head, number);
      if (part.part != nullptr) classes += part.pass->classes;
    }
    if (classes == 0) break;
    if (args.q.size(0) * classes >= omp_get_max_threads()) {
      run_part<T, Term>(args, number, Traversal::whole, shared);
    } else {
      run_part<T, Term>(args, number, Traversal::by_query, shared);
      run_part<T, Term>(args, number, Traversal::by_key, shared);
    }
  }
  if (shared.by_label != nullptr) add_table_gradient(args, shared.by_label);
}

}  // namespace

std::size_t attention_scratch_bytes(const AttentionBackwardArgs& args) {
  std::size_t bytes = 0;
  with_term(args, [&]<class T, class Term>(T, std::type_identity<Term>) {
    bytes = Shared<T>(args).bytes + thread_bytes<T, Term>(args) * static_cast<std::size_t>(omp_get_max_threads());
  });
  return bytes;
}

void attention_backward(const AttentionBackwardArgs& args, const Launch& launch) {
  GroupedGradients::run(
      args, launch,
      [](const AttentionBackwardArgs& by_head, const Launch&) {
        with_term(by_head, [&]<class T, class Term>(T, std::type_identity<Term>) { backward<T, Term>(by_head); });
      },
      repeat_heads_backward);
}

}  // namespace longstride::kernels::cpu
