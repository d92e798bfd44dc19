// The kernels of attention with a pattern by themselves.
#include <fmt/format.h>

#include "framework/mixers/attention/mixer.h"
#include "framework/ops/run.h"
#include "kernels/attention/attention.h"

namespace longstride {

// Tensors as the model has them: q, k and v are slices of one, and so are their gradients.
std::vector<MixerBench> AttentionMixer::bench(Context& ctx, Scratch& scratch, std::int64_t batch,
                                              std::int64_t positions) const {
  const std::int64_t heads = config_.heads, size = config_.value_size;
  const Tensor qkv = scratch.tensor({batch, positions, query_key_value_.out()}, ctx.compute), dqkv = scratch.like(qkv),
               o = scratch.tensor({batch, positions, heads * size}, ctx.compute), dout = scratch.like(o),
               lse = scratch.tensor({batch, heads, positions}, Dtype::f32);
  const QkvHeads in = heads_of(qkv, heads), grad = heads_of(dqkv, heads);
  const std::shared_ptr<const kernels::AttentionPlan> plan = plans_->plan(layer_, positions);
  const kernels::AttentionArgs forward{.plan = plan.get(),
                                       .q = in.q,
                                       .k = in.k,
                                       .v = in.v,
                                       .o = o.split_last(heads, size),
                                       .lse = lse,
                                       .scale = scale()};
  const kernels::AttentionBackwardArgs backward{.plan = plan.get(),
                                                .q = in.q,
                                                .k = in.k,
                                                .v = in.v,
                                                .o = o.split_last(heads, size),
                                                .lse = lse,
                                                .dout = dout.split_last(heads, size),
                                                .dq = grad.q,
                                                .dk = grad.k,
                                                .dv = grad.v,
                                                .scale = scale()};
  const PairCost one = cost(positions);
  const auto positions_of_all = static_cast<double>(batch * positions),
             bytes = static_cast<double>(bytes_of(ctx.compute)), rows = positions_of_all * static_cast<double>(heads),
             elements = positions_of_all * static_cast<double>(query_key_value_.out() + heads * size),
             sequences = static_cast<double>(batch);
  MixerBench out;
  out.name = fmt::format("{} ({}, {}, {}, {}/{})", bench_name(), batch, heads, positions, config_.key_size, size);
  out.inputs = {qkv, dout};
  out.forward = [this, plan, forward](Context& run) {
    Scratch inner(run);
    kernels::AttentionArgs args = forward;
    args.lists = lists_of(run, args.q.size(1), inner);
    ops::run(run, args);
  };
  out.backward = [this, plan, backward](Context& run) {
    Scratch inner(run);
    kernels::AttentionBackwardArgs args = backward;
    args.lists = lists_of(run, args.q.size(1), inner, true);
    ops::run(run, args);
  };
  out.forward_work = {elements * bytes + 4 * rows, sequences * one.forward_flops};
  out.backward_work = {2 * elements * bytes + 4 * rows, sequences * one.backward_flops};
  return {std::move(out)};
}

std::string AttentionMixer::bench_name() const {
  const kernels::PatternConfig& pattern = plans_->pattern();
  if (pattern.integration == kernels::Integration::multihead) return "multihead";
  std::string name;
  for (kernels::PartKind part : kernels::parts_of(pattern, layer_, config_.heads, 0))
    name = name.empty() ? kernels::name_of(part) : fmt::format("{}+{}", name, kernels::name_of(part));
  return name;
}

}  // namespace longstride
