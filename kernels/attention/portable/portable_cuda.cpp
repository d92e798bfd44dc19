// Turns a plan's passes and parts into launches.
#include <algorithm>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "kernels/attention/delta.h"
#include "kernels/attention/joined_part.h"
#include "kernels/attention/portable/portable.h"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_types.cuh"

namespace longstride::kernels::cuda::portable {

namespace {

// The work of one launch for a head: some parts of a pass, or nothing.
struct HeadLaunch {
  const Pass* pass = nullptr;
  std::int32_t first_part = 0, parts = 0;
  bool adds = false;    // to the results of earlier launches
  bool joined = false;  // with the pass's first part
};

// The number-th pass of a head, with all its parts.
HeadLaunch numbered_pass(const AttentionPlan& plan, std::int64_t head, std::int32_t number) {
  const auto passes = plan.passes_of(head);
  if (number >= static_cast<std::int32_t>(passes.size())) return {};
  const Pass& pass = passes[static_cast<std::size_t>(number)];
  return {&pass, pass.first_part, pass.parts, number > 0};
}

// The number-th part of a head, counted over its passes. joins: it may share keys with the first part.
HeadLaunch numbered_part(const AttentionPlan& plan, std::int64_t head, std::int32_t number, bool joins) {
  const auto passes = plan.passes_of(head);
  for (const Pass& pass : passes) {
    if (number < pass.parts) {
      const auto parts = plan.parts_of(pass);
      const bool first_pass = &pass == passes.data();
      const bool joined =
          joins && first_pass && number > 0 && continues(parts[static_cast<std::size_t>(number)], parts[0]);
      return {&pass, pass.first_part + number, 1, !joined && (number > 0 || !first_pass), joined};
    }
    number -= pass.parts;
  }
  return {};
}

PortablePass pass_of(const AttentionPlan& plan, const HeadLaunch& numbered) {
  const auto first = plan.parts.begin() + numbered.first_part;
  PortablePass pass(numbered.pass->queries, numbered.pass->classes, std::span(first, first + numbered.parts));
  pass.adds = numbered.adds;
  if (numbered.joined) pass.part[0] = joined(pass.part[0], plan.parts_of(*numbered.pass)[0]);
  return pass;
}

// Calls launch() for every pass (or part) number that some head has, with call.group set to the heads that have it, as
// many at a time as fit. Heads with the same geometry name the same passes, and share `key_heads`.
template <class Choose, class F>
void each_group(const AttentionPlan& plan, std::int64_t key_heads, PlanCall& call, Choose&& choose, F&& launch) {
  const auto heads = static_cast<std::int64_t>(plan.heads.size());
  for (std::int32_t number = 0, found = 1; found > 0; ++number) {
    found = 0;
    HeadLaunch chosen[PassGroup::most_passes];
    PassGroup& group = call.group;
    group.heads = group.passes = 0;
    const auto finish = [&] {
      if (group.heads > 0) launch();
      group.heads = group.passes = 0;
    };
    for (std::int64_t head = 0; head < heads; ++head) {
      const HeadLaunch numbered = choose(plan, head, number);
      if (numbered.pass == nullptr) continue;
      ++found;
      const auto same = [&](const HeadLaunch& other) { return other.first_part == numbered.first_part; };
      if (group.heads == PassGroup::most_heads ||
          (group.passes == PassGroup::most_passes && std::none_of(chosen, chosen + group.passes, same)))
        finish();
      const auto pass = static_cast<std::int32_t>(std::find_if(chosen, chosen + group.passes, same) - chosen);
      if (pass == group.passes) {
        chosen[pass] = numbered;
        group.pass[group.passes++] = pass_of(plan, numbered);
      }
      group.head[group.heads] = static_cast<std::int16_t>(head);
      group.key_head[group.heads] = static_cast<std::int16_t>(head / (heads / key_heads));
      group.pass_of[group.heads++] = static_cast<std::uint8_t>(pass);
    }
    finish();
  }
}

template <class Args>
PlanCall call_of(const Args& args, std::initializer_list<const Tensor*> matrices) {
  PlanCall call;
  call.q = HeadMatrix(args.q);
  call.k = HeadMatrix(args.k);
  call.v = HeadMatrix(args.v);
  call.o = HeadMatrix(args.o);
  call.lse = args.lse.template as<float>();
  call.scale = static_cast<float>(args.scale);
  call.batch = static_cast<std::int32_t>(args.q.size(0));
  call.n_q = static_cast<std::int32_t>(args.q.size(1));
  call.n_k = static_cast<std::int32_t>(args.k.size(1));
  call.bounds = BoundsView(args.bounds);
  call.lists = ListsView::of_queries(args.lists);
  call.heads = static_cast<std::int32_t>(args.q.size(2));
  call.key_size = static_cast<std::int32_t>(args.q.size(3));
  call.value_size = static_cast<std::int32_t>(args.v.size(3));
  call.aligned = std::all_of(matrices.begin(), matrices.end(), [](const Tensor* v) { return rows_on_16_bytes(*v); });
  if (std::max(args.q.size(3), args.v.size(3)) > most_columns)
    throw std::runtime_error("attention with heads of " + std::to_string(std::max(args.q.size(3), args.v.size(3))) +
                             ", but the CUDA kernels take at most " + std::to_string(most_columns));
  return call;
}

// f(the call), with its labels, if it has some.
template <class T, class Args, class F>
void with_labels(const Args& args, const PlanCall& without, const LabelMatrices& of, const Launch& launch, F&& f) {
  if (!args.labels.given()) return f(PlanCall(without));
  LabelsCall call;
  static_cast<PlanCall&>(call) = without;
  call.rule = LabelRule(args.labels, 0);
  call.count = of.count;
  call.table = of.table;
  call.table_label = of.table_label;
  call.table_head = of.table_head;
  call.products = of.products;
  call.sums = of.sums;
  label_products<T>(of, launch);
  f(call);
}

template <class T, class Call>
void launch_dq(const AttentionBackwardArgs& args, const Call& call, const LabelMatrices& of, const Launch& launch) {
  if constexpr (std::is_same_v<Call, LabelsCall>) {
    clear_label_sums(of, launch);
    dq<T>(call, launch);
    if (args.dtable.given()) add_table_gradient<T>(of, args.dtable.as<float>(), launch);
  } else {
    dq<T>(call, launch);
  }
}

}  // namespace

void attention(const AttentionArgs& args, const Launch& launch) {
  PlanCall without = call_of(args, {&args.q, &args.k, &args.v, &args.o});
  without.sink = args.sink.as<const float>();
  const LabelMatrices of(args.labels, args.q, args.scale, args.scratch.as<float>());
  with_gpu_type(args.q.dtype(), [&](auto zero) {
    with_labels<decltype(zero)>(args, without, of, launch, [&](auto call) {
      each_group(*args.plan, args.k.size(2), call, numbered_pass, [&] { forward<decltype(zero)>(call, launch); });
    });
  });
}

void attention_backward(const AttentionBackwardArgs& args, const float* delta, float* by_label, const Launch& launch) {
  PlanCall without = call_of(args, {&args.q, &args.k, &args.v, &args.dout, &args.dq, &args.dk, &args.dv});
  without.dout = HeadMatrix(args.dout);
  without.dq = HeadMatrix(args.dq);
  without.dk = HeadMatrix(args.dk);
  without.dv = HeadMatrix(args.dv);
  without.delta = delta;
  // Places from the end of a part's interval are not those of one that is joined with another part's.
  const auto part = [&](const AttentionPlan& plan, std::int64_t head, std::int32_t number) {
    return numbered_part(plan, head, number, !args.labels.from_end);
  };
  const LabelMatrices of(args.labels, args.q, args.scale, by_label);
  with_gpu_type(args.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    with_labels<T>(args, without, of, launch, [&](auto call) {
      each_group(*args.plan, args.k.size(2), call, numbered_pass, [&] { launch_dq<T>(args, call, of, launch); });
      call.lists = ListsView::of_keys(args.lists);
      each_group(*args.plan, args.k.size(2), call, part, [&] { dkdv<T>(call, launch); });
    });
  });
}

}  // namespace longstride::kernels::cuda::portable
