#include "framework/layers/attention_branch.h"

#include <cmath>

#include "framework/ops/basic.h"
#include "framework/ops/normalise.h"

namespace longstride {

AttentionBranch::AttentionBranch(ParameterSet& parameters, const std::string& name, const AttentionBranchConfig& config,
                                 std::shared_ptr<const AttentionPlans> plans, std::int64_t layer)
    : config_(config),
      norm_(parameters, name + "_norm", config.width),
      query_key_value_(parameters, name + ".query_key_value", config.width,
                       config.heads * (2 * config.key_size + config.value_size), config.weight_deviation),
      output_(parameters, name + ".output", config.heads * config.value_size, config.width, config.output_deviation),
      plans_(std::move(plans)),
      layer_(layer) {}

AttentionBranch::Heads AttentionBranch::heads_of(const Tensor& qkv) const {
  const std::int64_t keys = config_.heads * config_.key_size, values = config_.heads * config_.value_size;
  return {qkv.slice(-1, 0, keys).split_last(config_.heads, config_.key_size),
          qkv.slice(-1, keys, 2 * keys).split_last(config_.heads, config_.key_size),
          qkv.slice(-1, 2 * keys, 2 * keys + values).split_last(config_.heads, config_.value_size)};
}

double AttentionBranch::scale() const { return 1.0 / std::sqrt(static_cast<double>(config_.key_size)); }

void AttentionBranch::forward(Context& ctx, const Tensor& x, const Tensor& y, Tape* tape) const {
  const std::int64_t batch = x.size(0), seq = x.size(1);
  Scratch scratch(ctx);
  const Tensor normed = scratch.tensor(x.shape(), ctx.compute, tape);
  norm_.forward(ctx, x, normed, tape);
  const Tensor qkv = scratch.tensor({batch, seq, query_key_value_.out()}, ctx.compute, tape);
  query_key_value_.apply(ctx, normed, qkv);
  const Tensor o = scratch.tensor({batch, seq, output_.in()}, ctx.compute, tape);
  const Tensor lse = scratch.tensor({batch, config_.heads, seq}, ctx.residual, tape);
  const Heads in = heads_of(qkv);
  ops::attention(ctx, *plans_->plan(layer_, seq), in.q, in.k, in.v, scale(),
                 o.split_last(config_.heads, config_.value_size), lse);
  if (tape != nullptr)
    for (const Tensor& t : {normed, qkv, o, lse}) tape->push(t);
  if (!y.given()) return;
  const Tensor mixed = scratch.tensor(x.shape(), ctx.compute);
  output_.apply(ctx, o, mixed);
  ops::dropout_add(ctx, mixed, x, config_.dropout, config_.dropout_id, y);
}

void AttentionBranch::backward(Context& ctx, const Tensor& dy, const Tensor& dx, Tape& tape) const {
  const Tensor lse = tape.pop(), o = tape.pop(), qkv = tape.pop(), normed = tape.pop();
  Scratch scratch(ctx);
  const Tensor dnormed = scratch.like(normed);
  {
    Scratch inner(ctx);
    const Tensor dqkv = inner.like(qkv);
    const Tensor dout = inner.like(o);
    {
      Scratch innermost(ctx);
      const Tensor dmixed = innermost.tensor(dy.shape(), ctx.compute);
      ops::dropout_backward(ctx, dy, config_.dropout, config_.dropout_id, dmixed);
      output_.gradients(ctx, o, dmixed, dout);
    }
    const Heads in = heads_of(qkv), grad = heads_of(dqkv);
    const std::int64_t heads = config_.heads, size = config_.value_size;
    ops::attention_backward(ctx, *plans_->plan(layer_, dy.size(1)), in.q, in.k, in.v, o.split_last(heads, size), lse,
                            dout.split_last(heads, size), scale(), grad.q, grad.k, grad.v);
    query_key_value_.gradients(ctx, normed, dqkv, dnormed);
  }
  if (dx.data() != dy.data()) ops::copy(ctx, dy, dx);
  norm_.backward_into(ctx, dnormed, dx, tape);
}

void AttentionBranch::decode(Context& ctx, const Tensor& x, const Tensor& y, const ops::DecodeCache& cache,
                             std::int64_t position) const {
  const std::int64_t batch = x.size(0);
  Scratch scratch(ctx);
  const Tensor normed = scratch.tensor(x.shape(), ctx.compute);
  norm_.forward(ctx, x, normed, nullptr);
  const Tensor qkv = scratch.tensor({batch, 1, query_key_value_.out()}, ctx.compute);
  query_key_value_.apply(ctx, normed, qkv);
  const Tensor o = scratch.tensor({batch, 1, output_.in()}, ctx.compute);
  const Heads in = heads_of(qkv);
  ops::append(ctx, cache, in.k, in.v, position);
  ops::attend(ctx, cache, in.q, position, scale(), o.split_last(config_.heads, config_.value_size));
  const Tensor mixed = scratch.tensor(x.shape(), ctx.compute);
  output_.apply(ctx, o, mixed);
  ops::dropout_add(ctx, mixed, x, 0, config_.dropout_id, y);
}

}  // namespace longstride
