// The kernels of attention with a pattern by themselves, with those of global rows that are added, all of one group.
#include <fmt/format.h>

#include "framework/mixers/attention/mixer.h"

namespace longstride {

// Tensors as the model has them: q, k and v are slices of one, and so are their gradients.
std::vector<MixerBench> AttentionMixer::bench(Context& ctx, Scratch& scratch, std::int64_t batch,
                                              std::int64_t positions) const {
  const std::int64_t heads = config_.heads, size = config_.value_size, added = config_.global.added,
                     rows = added + positions;
  const Tensor qkv = scratch.tensor({batch, rows, query_key_value_.out()}, ctx.compute), dqkv = scratch.like(qkv),
               dout = scratch.tensor({batch, rows, heads * size}, ctx.compute);
  Attended attended = {scratch.like(dout), scratch.tensor({batch, heads, positions}, Dtype::f32), {}};
  if (added > 0) attended.global_lse = scratch.tensor({batch, heads, added}, Dtype::f32);
  const QkvHeads in = heads_of(qkv, heads);
  const auto of_added = [added](const QkvHeads& x) { return QkvHeads{x.q.slice(1, 0, added), x.k, x.v}; };
  const PairCost one = cost(positions);
  const auto count = static_cast<double>(batch * rows), bytes = static_cast<double>(bytes_of(ctx.compute)),
             elements = count * static_cast<double>(query_key_value_.out() + heads * size),
             of_heads = count * static_cast<double>(heads), sequences = static_cast<double>(batch);
  MixerBench out;
  out.name = fmt::format("{} ({}, {}, {}, {}/{})", bench_name(), batch, heads, positions, config_.key_size, size);
  out.inputs = {qkv, dout};
  Terms terms;  // those of labels
  for (const auto& [own, term] : {std::pair{labels_, &terms.labels}, {global_labels_, &terms.global_labels}}) {
    if (own == nullptr) continue;
    *term = {scratch.tensor(own->shape, ctx.compute), scratch.tensor(own->shape, ctx.exact)};
    out.inputs.push_back(term->value);
    out.zeros.push_back(term->gradient);
  }
  out.forward = [=, this](Context& run) {
    attend_to(run, in, attended, terms);
    if (added > 0)
      attend_in_pieces(run, Side::rows, of_added(in), terms, attended.o.slice(1, 0, added), attended.global_lse);
  };
  out.backward = [=, this](Context& run) {
    backward_positions(run, in, attended, dout, terms, dqkv);
    const QkvHeads grad = heads_of(dqkv, heads);
    const Tensor dq = dqkv.slice(-1, 0, heads * config_.key_size).slice(1, 0, added);
    if (added > 0)
      backward_in_pieces(run, Side::rows, of_added(in), terms, attended.o.slice(1, 0, added), attended.global_lse,
                         {dout.slice(1, 0, added), dq, grad.k, grad.v});
  };
  out.forward_work = {elements * bytes + 4 * of_heads, sequences * one.forward_flops};
  out.backward_work = {2 * elements * bytes + 4 * of_heads, sequences * one.backward_flops};
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
