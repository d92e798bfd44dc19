#include "kernels/attention/attention.h"
#include "kernels/attention/cpu/query_tile.h"
#include "kernels/attention/term/none.h"

namespace longstride::kernels::cpu {

namespace {

template <class T>
std::size_t thread_bytes(const AttentionArgs& args) {
  Carver carver(nullptr);
  const ForwardSpace<T> counted(args.plan->tile, args.q, args.v, carver);
  return carver.used();
}

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
    const ForwardSpace<T> space(plan.tile, args.q, args.v, carver);
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
        const NoTerm<T> term(args, pass, part, unit.residue, unit.sequence, unit.head);
        tile.attend(term, term.keys, term.walk_keys(unit.tile));
      }
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
