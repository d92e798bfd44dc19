#include "framework/layers/attention_branch.h"

#include <cmath>

#include "framework/layers/sequence_exchange.h"

namespace longstride {

AttentionBranch::AttentionBranch(ParameterSet& parameters, const std::string& name, const AttentionBranchConfig& config,
                                 std::shared_ptr<const AttentionPlans> plans, std::int64_t layer)
    : config_(config),
      query_key_value_(
          parameters, name + ".query_key_value", config.width,
          {config.heads * config.key_size, config.heads * config.key_size, config.heads * config.value_size},
          config.weight_deviation),
      output_(parameters, name + ".output", config.heads * config.value_size, config.width, config.output_deviation),
      plans_(std::move(plans)),
      layer_(layer) {}

std::shared_ptr<const kernels::AttentionPlan> AttentionPlans::plan(std::int64_t layer, std::int64_t positions,
                                                                   const SequenceGroup& group) const {
  const std::shared_ptr<const kernels::AttentionPlan> whole = plan(layer, positions);
  std::lock_guard lock(mutex_);
  auto& part = parts_[{whole.get(), group.index(), group.size()}];
  if (part != nullptr) return part;
  auto mine = std::make_shared<kernels::AttentionPlan>(*whole);
  const auto each = static_cast<std::ptrdiff_t>(whole->heads.size()) / group.size();
  const auto first = whole->heads.begin() + group.index() * each;
  mine->heads.assign(first, first + each);
  return part = mine;
}

AttentionBranch::Heads AttentionBranch::heads_of(const Tensor& qkv, std::int64_t heads,
                                                 const Tensor& transformed) const {
  const std::int64_t keys = heads * config_.key_size, values = heads * config_.value_size;
  const Tensor& qk = transformed.given() ? transformed : qkv;
  return {qk.slice(-1, 0, keys).split_last(heads, config_.key_size),
          qk.slice(-1, keys, 2 * keys).split_last(heads, config_.key_size),
          qkv.slice(-1, 2 * keys, 2 * keys + values).split_last(heads, config_.value_size)};
}

Tensor AttentionBranch::queries_and_keys_in(const Tensor& qkv, std::int64_t heads) const {
  return qkv.slice(-1, 0, 2 * heads * config_.key_size).split_last(2 * heads, config_.key_size);
}

Tensor AttentionBranch::transform(Context& ctx, const Tensor& qkv, std::int64_t heads, std::int64_t first,
                                  Scratch& scratch, Tape* tape) const {
  if (!config_.transform.any()) return {};
  const Tensor qk = scratch.tensor({qkv.size(0), qkv.size(1), 2 * heads * config_.key_size}, ctx.compute, tape);
  ops::query_key(ctx, config_.transform, queries_and_keys_in(qkv, heads), first, queries_and_keys_in(qk, heads));
  return qk;
}

void AttentionBranch::transform_back(Context& ctx, const Tensor& qkv, std::int64_t heads, const Tensor& dqkv) const {
  if (!config_.transform.any()) return;
  const Tensor gradient = queries_and_keys_in(dqkv, heads);
  ops::query_key_backward(ctx, config_.transform, gradient, queries_and_keys_in(qkv, heads), 0, gradient);
}

double AttentionBranch::scale() const { return 1.0 / std::sqrt(static_cast<double>(config_.key_size)); }

void AttentionBranch::forward(Context& ctx, const Tensor& normed, const Tensor& out, Tape* tape) const {
  if (ctx.group != nullptr) return forward_in_group(ctx, normed, out, tape);
  const std::int64_t batch = normed.size(0), seq = normed.size(1);
  Scratch scratch(ctx);
  const Tensor qkv = scratch.tensor({batch, seq, query_key_value_.out()}, ctx.compute, tape);
  query_key_value_.apply(ctx, normed, qkv);
  const Tensor qk = transform(ctx, qkv, config_.heads, 0, scratch, tape);
  const Tensor o = scratch.tensor({batch, seq, output_.in()}, ctx.compute, tape);
  const Tensor lse = scratch.tensor({batch, config_.heads, seq}, ctx.residual, tape);
  const Heads in = heads_of(qkv, config_.heads, qk);
  ops::attention(ctx, *plans_->plan(layer_, seq), in.q, in.k, in.v, scale(),
                 o.split_last(config_.heads, config_.value_size), lse);
  if (tape != nullptr)
    for (const Tensor& t : {normed, qkv, qk, o, lse}) tape->push(t);
  if (out.given()) output_.apply(ctx, o, out);
}

void AttentionBranch::backward(Context& ctx, const Tensor& dout, const Tensor& dnormed, Tape& tape) const {
  if (ctx.group != nullptr) return backward_in_group(ctx, dout, dnormed, tape);
  const Tensor lse = tape.pop(), o = tape.pop(), qk = tape.pop(), qkv = tape.pop(), normed = tape.pop();
  Scratch scratch(ctx);
  const Tensor dqkv = scratch.like(qkv);
  {
    Scratch inner(ctx);
    const Tensor d_o = inner.like(o);
    output_.gradients_but_bias(ctx, o, dout, d_o);
    const std::int64_t heads = config_.heads, size = config_.value_size;
    const Heads in = heads_of(qkv, heads, qk), grad = heads_of(dqkv, heads);
    ops::attention_backward(ctx, *plans_->plan(layer_, dout.size(1)), in.q, in.k, in.v, o.split_last(heads, size), lse,
                            d_o.split_last(heads, size), scale(), grad.q, grad.k, grad.v);
  }
  transform_back(ctx, qkv, config_.heads, dqkv);
  query_key_value_.gradients(ctx, normed, dqkv, dnormed);
}

AttentionBranch::QueriesAndKeys AttentionBranch::queries_and_keys(Context& ctx, const Tensor& normed,
                                                                  Scratch& scratch) const {
  const Tensor qkv = scratch.tensor({normed.size(0), normed.size(1), query_key_value_.out()}, ctx.compute);
  query_key_value_.apply(ctx, normed, qkv);
  const Heads heads = heads_of(qkv, config_.heads, transform(ctx, qkv, config_.heads, 0, scratch));
  return {heads.q, heads.k};
}

std::vector<std::int64_t> AttentionBranch::column_groups() const {
  const std::int64_t keys = config_.heads * config_.key_size, values = config_.heads * config_.value_size;
  return {keys, keys, values};
}

void AttentionBranch::forward_in_group(Context& ctx, const Tensor& normed, const Tensor& out, Tape* tape) const {
  const std::int64_t run = normed.size(1), seq = run * ctx.group->size(), heads = config_.heads / ctx.group->size();
  Scratch scratch(ctx);
  const Tensor qkv = scratch.tensor({1, seq, query_key_value_.out() / ctx.group->size()}, ctx.compute, tape);
  {
    Scratch inner(ctx);
    const Tensor mine = inner.tensor({1, run, query_key_value_.out()}, ctx.compute);
    query_key_value_.apply(ctx, normed, mine);
    positions_to_heads(ctx, mine, column_groups(), qkv);
  }
  const Tensor qk = transform(ctx, qkv, heads, 0, scratch, tape);  // all positions are here
  const Tensor o_heads = scratch.tensor({1, seq, heads * config_.value_size}, ctx.compute, tape);
  const Tensor lse = scratch.tensor({1, heads, seq}, ctx.residual, tape);
  const Heads in = heads_of(qkv, heads, qk);
  ops::attention(ctx, *plans_->plan(layer_, seq, *ctx.group), in.q, in.k, in.v, scale(),
                 o_heads.split_last(heads, config_.value_size), lse);
  const Tensor o = scratch.tensor({1, run, output_.in()}, ctx.compute, tape);
  heads_to_positions(ctx, o_heads, {output_.in()}, o);
  if (tape != nullptr)
    for (const Tensor& t : {normed, qkv, qk, o_heads, lse, o}) tape->push(t);
  if (out.given()) output_.apply(ctx, o, out);
}

void AttentionBranch::backward_in_group(Context& ctx, const Tensor& dout, const Tensor& dnormed, Tape& tape) const {
  const Tensor o = tape.pop(), lse = tape.pop(), o_heads = tape.pop(), qk = tape.pop(), qkv = tape.pop(),
               normed = tape.pop();
  const std::int64_t heads = config_.heads / ctx.group->size(), size = config_.value_size;
  Scratch scratch(ctx);
  const Tensor dqkv = scratch.tensor({1, normed.size(1), query_key_value_.out()}, ctx.compute);
  {
    Scratch inner(ctx);
    const Tensor d_heads = inner.like(o_heads), dqkv_heads = inner.like(qkv);
    {
      Scratch positions(ctx);
      const Tensor d_o = positions.like(o);
      output_.gradients_but_bias(ctx, o, dout, d_o);
      positions_to_heads(ctx, d_o, {output_.in()}, d_heads);
    }
    const Heads in = heads_of(qkv, heads, qk), grad = heads_of(dqkv_heads, heads);
    ops::attention_backward(ctx, *plans_->plan(layer_, qkv.size(1), *ctx.group), in.q, in.k, in.v,
                            o_heads.split_last(heads, size), lse, d_heads.split_last(heads, size), scale(), grad.q,
                            grad.k, grad.v);
    transform_back(ctx, qkv, heads, dqkv_heads);
    heads_to_positions(ctx, dqkv_heads, column_groups(), dqkv);
  }
  query_key_value_.gradients(ctx, normed, dqkv, dnormed);
}

void AttentionBranch::decode(Context& ctx, const Tensor& normed, const Tensor& out, const ops::DecodeCache& cache,
                             std::int64_t position) const {
  const std::int64_t batch = normed.size(0);
  Scratch scratch(ctx);
  const Tensor qkv = scratch.tensor({batch, 1, query_key_value_.out()}, ctx.compute);
  query_key_value_.apply(ctx, normed, qkv);
  const Tensor o = scratch.tensor({batch, 1, output_.in()}, ctx.compute);
  const Heads in = heads_of(qkv, config_.heads, transform(ctx, qkv, config_.heads, position, scratch));
  ops::append(ctx, cache, in.k, in.v, position);
  ops::attend(ctx, cache, in.q, position, scale(), o.split_last(config_.heads, config_.value_size));
  output_.apply(ctx, o, out);
}

}  // namespace longstride
