#include "kernels/attention/attention.h"
#include "kernels/attention/cpu/query_tile.h"
#include "kernels/attention/term/labels_cpu.h"

namespace longstride::kernels::cpu {

namespace {

template <class T, class Term>
std::size_t thread_bytes(const AttentionArgs& args) {
  Carver carver(nullptr);
  const ForwardSpace<T> counted(args.plan->tile, args.q, args.v, carver);
  const typename Term::Space of_term(args.labels, args.plan->tile, carver);
  return carver.used();
}

template <class T, class Term>
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
    const std::size_t offset = static_cast<std::size_t>(omp_get_thread_num()) * thread_bytes<T, Term>(args);
    Carver carver(static_cast<std::byte*>(args.scratch.data()) + offset);
    const ForwardSpace<T> space(plan.tile, args.q, args.v, carver);
    const typename Term::Space of_term(args.labels, plan.tile, carver);
#pragma omp for schedule(dynamic, work.chunk())
    for (std::int64_t u = 0; u < work.size(); ++u) {
      const WorkUnit unit = work.at(u);
      const Pass& pass = plan.passes_of(unit.head)[static_cast<std::size_t>(number)];
      const RowSet queries = rows_within(pass.queries, unit.residue, plan.queries);
      const QueryTile<T> tile({args, args.q, args.k, unit.sequence, unit.head}, queries, unit.tile, plan.tile,
                              static_cast<T>(args.scale), nullptr, space);
      if (tile.empty()) continue;
      number == 0 ? tile.start() : tile.resume();
      for (const Part& part : plan.parts_of(pass)) {
        Term term(args, pass, part, unit, of_term);
        tile.attend(term, term.keys, term.walk_keys(unit.tile));
      }
      tile.finish(number == 0 && args.sink.given() ? args.sink.as<const T>() + unit.head : nullptr);
    }
  }
}

}  // namespace

std::size_t attention_scratch_bytes(const AttentionArgs& args) {
  std::size_t bytes = 0;
  with_term(args, [&]<class T, class Term>(T, std::type_identity<Term>) { bytes = thread_bytes<T, Term>(args); });
  return bytes * static_cast<std::size_t>(omp_get_max_threads());
}

void attention(const AttentionArgs& args, const Launch&) {
  std::int32_t passes = 0;
  for (const HeadPlan& head : args.plan->heads) passes = std::max(passes, head.passes);
  with_term(args, [&]<class T, class Term>(T, std::type_identity<Term>) {
    for (std::int32_t number = 0; number < passes; ++number) attention_pass<T, Term>(args, number);
  });
}

}  // namespace longstride::kernels::cpu
