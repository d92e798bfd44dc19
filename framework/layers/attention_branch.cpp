#include "framework/layers/attention_branch.h"

#include <cmath>

namespace longstride {

AttentionBranch::AttentionBranch(ParameterSet& parameters, const std::string& name, const AttentionBranchConfig& config,
                                 std::shared_ptr<const AttentionPlans> plans, std::int64_t layer)
    : config_(config),
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

void AttentionBranch::forward(Context& ctx, const Tensor& normed, const Tensor& out, Tape* tape) const {
  const std::int64_t batch = normed.size(0), seq = normed.size(1);
  Scratch scratch(ctx);
  const Tensor qkv = scratch.tensor({batch, seq, query_key_value_.out()}, ctx.compute, tape);
  query_key_value_.apply(ctx, normed, qkv);
  const Tensor o = scratch.tensor({batch, seq, output_.in()}, ctx.compute, tape);
  const Tensor lse = scratch.tensor({batch, config_.heads, seq}, ctx.residual, tape);
  const Heads in = heads_of(qkv);
  ops::attention(ctx, *plans_->plan(layer_, seq), in.q, in.k, in.v, scale(),
                 o.split_last(config_.heads, config_.value_size), lse);
  if (tape != nullptr)
    for (const Tensor& t : {normed, qkv, o, lse}) tape->push(t);
  if (out.given()) output_.apply(ctx, o, out);
}

void AttentionBranch::backward(Context& ctx, const Tensor& dout, const Tensor& dnormed, Tape& tape) const {
  const Tensor lse = tape.pop(), o = tape.pop(), qkv = tape.pop(), normed = tape.pop();
  Scratch scratch(ctx);
  const Tensor dqkv = scratch.like(qkv);
  {
    Scratch inner(ctx);
    const Tensor d_o = inner.like(o);
    output_.gradients_but_bias(ctx, o, dout, d_o);
    const Heads in = heads_of(qkv), grad = heads_of(dqkv);
    const std::int64_t heads = config_.heads, size = config_.value_size;
    ops::attention_backward(ctx, *plans_->plan(layer_, dout.size(1)), in.q, in.k, in.v, o.split_last(heads, size), lse,
                            d_o.split_last(heads, size), scale(), grad.q, grad.k, grad.v);
  }
  query_key_value_.gradients(ctx, normed, dqkv, dnormed);
}

AttentionBranch::QueriesAndKeys AttentionBranch::queries_and_keys(Context& ctx, const Tensor& normed,
                                                                  Scratch& scratch) const {
  const Tensor qkv = scratch.tensor({normed.size(0), normed.size(1), query_key_value_.out()}, ctx.compute);
  query_key_value_.apply(ctx, normed, qkv);
  const Heads heads = heads_of(qkv);
  return {heads.q, heads.k};
}

void AttentionBranch::decode(Context& ctx, const Tensor& normed, const Tensor& out, const ops::DecodeCache& cache,
                             std::int64_t position) const {
  const std::int64_t batch = normed.size(0);
  Scratch scratch(ctx);
  const Tensor qkv = scratch.tensor({batch, 1, query_key_value_.out()}, ctx.compute);
  query_key_value_.apply(ctx, normed, qkv);
  const Tensor o = scratch.tensor({batch, 1, output_.in()}, ctx.compute);
  const Heads in = heads_of(qkv);
  ops::append(ctx, cache, in.k, in.v, position);
  ops::attend(ctx, cache, in.q, position, scale(), o.split_last(config_.heads, config_.value_size));
  output_.apply(ctx, o, out);
}

}  // namespace longstride
