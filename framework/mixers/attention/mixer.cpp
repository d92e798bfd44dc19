#include "framework/mixers/attention/mixer.h"

#include <algorithm>
#include <cmath>

#include "framework/layers/sequence_exchange.h"
#include "framework/ops/basic.h"
#include "kernels/attention/attention.h"
#include "kernels/block_lists/block_lists.h"
#include "kernels/elementwise/elementwise.h"

namespace longstride {

AttentionMixer::AttentionMixer(ParameterSet& parameters, const std::string& name, const AttentionMixerConfig& config,
                               std::shared_ptr<const AttentionPlans> plans, std::int64_t layer)
    : config_(config),
      query_key_value_(
          parameters, name + ".query_key_value", config.width,
          {config.heads * config.key_size, config.key_heads * config.key_size, config.key_heads * config.value_size},
          config.weight_deviation, config.biased),
      output_(parameters, name + ".output", config.heads * config.value_size, config.width, config.output_deviation,
              config.output_biased),
      plans_(std::move(plans)),
      layer_(layer) {
  if (config.sink) sink_ = &parameters.add(name + ".sink", {config.heads}, {});
  const bool added = config.global.added > 0;
  const auto add_labels = [&](const char* part) {
    const std::int64_t relations = !added ? 0 : config.global.of_groups ? 2 : 1;
    Parameter& table = parameters.add(name + part, {2 * config.labels + 1 + relations, config.heads, config.key_size},
                                      {config.label_deviation, 0});
    table.may_be_new = true;
    return &table;
  };
  if (config.labels > 0) labels_ = add_labels(".labels");
  if (config.labels > 0 && added) global_labels_ = add_labels(".global_labels");
  if (!config.global.own) return;
  const std::int64_t queries = config.heads * config.key_size, keys = config.key_heads * config.key_size,
                     values = config.key_heads * config.value_size;
  const auto like_own = [&](const char* part, const std::vector<std::int64_t>& outs, std::int64_t first) {
    auto made =
        std::make_unique<Linear>(parameters, name + part, config.width, outs, config.weight_deviation, config.biased);
    made->start_like(query_key_value_, first);
    return made;
  };
  global_query_ = like_own(".global_query", {queries}, 0);
  global_key_value_ = like_own(".global_key_value", {keys, values}, queries);
}

AttentionMixer::QkvHeads AttentionMixer::heads_of(const Tensor& qkv, std::int64_t heads,
                                                  const Tensor& transformed) const {
  const std::int64_t key_heads = keys_of(heads), queries = heads * config_.key_size,
                     keys_end = queries + key_heads * config_.key_size;
  const Tensor& qk = transformed.given() ? transformed : qkv;
  return {qk.slice(-1, 0, queries).split_last(heads, config_.key_size),
          qk.slice(-1, queries, keys_end).split_last(key_heads, config_.key_size),
          qkv.slice(-1, keys_end, keys_end + key_heads * config_.value_size).split_last(key_heads, config_.value_size)};
}

Tensor AttentionMixer::queries_and_keys_in(const Tensor& qkv, std::int64_t heads) const {
  const std::int64_t both = heads + keys_of(heads);
  return qkv.slice(-1, 0, both * config_.key_size).split_last(both, config_.key_size);
}

Tensor AttentionMixer::transform(Context& ctx, const Tensor& qkv, std::int64_t heads, std::int64_t first,
                                 Scratch& scratch, Tape* tape) const {
  if (!config_.transform.any()) return {};
  const Tensor qk =
      scratch.tensor({qkv.size(0), qkv.size(1), (heads + keys_of(heads)) * config_.key_size}, ctx.compute, tape);
  ops::run(ctx, kernels::QueryKeyArgs{.transform = config_.transform,
                                      .x = queries_and_keys_in(qkv, heads),
                                      .y = queries_and_keys_in(qk, heads),
                                      .first = first,
                                      .first_at = ctx.position,
                                      .begin = ctx.documents.origin()});
  return qk;
}

void AttentionMixer::transform_back(Context& ctx, const Tensor& qkv, std::int64_t heads, const Tensor& dqkv) const {
  if (!config_.transform.any()) return;
  const Tensor gradient = queries_and_keys_in(dqkv, heads);
  ops::run(ctx, kernels::QueryKeyBackwardArgs{.transform = config_.transform,
                                              .dy = gradient,
                                              .x = queries_and_keys_in(qkv, heads),
                                              .dx = gradient,
                                              .begin = ctx.documents.origin()});
}

kernels::RowBounds AttentionMixer::of_documents(const Context& ctx) {
  const DocumentBounds& documents = ctx.documents;
  return documents.given() ? kernels::RowBounds::of_documents(documents.begin, documents.end) : kernels::RowBounds{};
}

double AttentionMixer::scale() const { return 1.0 / std::sqrt(static_cast<double>(config_.key_size)); }

void AttentionMixer::forward(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape) const {
  forward_with(ctx, normed, out, tape, tape, {});
}

void AttentionMixer::forward_keeping(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape& tape) const {
  forward_with(ctx, normed, out, nullptr, &tape, {});
}

void AttentionMixer::forward_again(Context& ctx, const Tensor& normed, const BranchOutput& out, const KeptResults& kept,
                                   Tape& tape) const {
  forward_with(ctx, normed, out, &tape, nullptr,
               {kept.at(0), kept.at(1), config_.global.given() ? kept.at(2) : Tensor{}});
}

void AttentionMixer::forward_with(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape,
                                  Tape* kept_on, Attended known) const {
  const int ranks = ctx.sequence_ranks();
  const std::int64_t batch = normed.size(0), seq = normed.size(1) * ranks, heads = config_.heads / ranks;
  Scratch scratch(ctx);
  const Tensor qkv = scratch.tensor({batch, seq, query_key_value_.out() / ranks}, ctx.compute, tape);
  {
    Scratch inner(ctx);
    const Tensor mine = positions_like(ctx, qkv, inner);
    query_key_value_.apply(ctx, normed, mine);
    positions_to_heads(ctx, mine, column_groups(), qkv);
  }
  const Tensor qk = transform(ctx, qkv, heads, 0, scratch, tape);
  const QkvHeads in = heads_of(qkv, heads, qk);
  const GlobalInput global = project_global(ctx, normed, in, scratch, tape);
  if (!known.o.given()) {
    known = attend(ctx, in, scratch, kept_on);
    attend_globally(ctx, global, known, scratch, kept_on);
  }
  const Tensor o = positions_like(ctx, known.o, scratch, tape);
  heads_to_positions(ctx, known.o, {output_.in()}, o);
  std::vector<Tensor> saved = {known.o, known.lse};
  if (config_.global.given()) saved.push_back(known.global_lse);
  if (tape != nullptr) saved.insert(saved.end(), {normed, qkv, qk, global.rows, global.query, global.key_value, o});
  if (Tape* const to = tape != nullptr ? tape : kept_on; to != nullptr)
    for (const Tensor& t : saved) to->push(t);
  if (!out.given()) return;
  const auto [to, residual] = out.place();
  output_.apply(ctx, o, to, residual);
}

AttentionMixer::Attended AttentionMixer::attend(Context& ctx, const QkvHeads& in, Scratch& scratch, Tape* tape) const {
  const std::int64_t batch = in.q.size(0), seq = in.q.size(1), heads = in.q.size(2);
  const std::int64_t added = config_.global.added;
  const Attended out = {scratch.tensor({batch, seq, heads * config_.value_size}, ctx.compute, tape),
                        scratch.tensor({batch, heads, seq - added}, ctx.exact, tape),
                        {}};
  attend_to(ctx, in, out, terms_of(ctx));
  return out;
}

void AttentionMixer::attend_to(Context& ctx, const QkvHeads& in, const Attended& out, const Terms& terms) const {
  const std::int64_t seq = in.q.size(1), heads = in.q.size(2);
  if (const std::int64_t added = config_.global.added; added > 0)
    return attend_in_pieces(ctx, Side::positions, {in.q.slice(1, added, seq), in.k, in.v}, terms,
                            out.o.slice(1, added, seq), out.lse);
  Scratch scratch(ctx);
  const auto plan = plans_->plan(layer_, seq, ctx.sequence_rank(), ctx.sequence_ranks());
  ops::run(ctx, kernels::AttentionArgs{.plan = plan.get(),
                                       .q = in.q,
                                       .k = in.k,
                                       .v = in.v,
                                       .o = out.o.split_last(heads, config_.value_size),
                                       .lse = out.lse,
                                       .scale = scale(),
                                       .bounds = of_documents(ctx),
                                       .lists = lists_of(ctx, seq, scratch),
                                       .labels = distance_labels(terms.labels),
                                       .sink = terms.sink.value});
}

// Copied in every pass: then they are no parameters, and the plan of memory counts them.
kernels::BlockLists AttentionMixer::lists_of(Context& ctx, std::int64_t positions, Scratch& scratch,
                                             bool from_keys) const {
  const kernels::ListsOfHeads* host = plans_->lists(layer_, positions);
  if (host == nullptr) return {};
  const std::int64_t heads = config_.heads / ctx.sequence_ranks(), first = ctx.sequence_rank() * heads,
                     blocks = std::ssize(host->key_begin) / config_.heads - 1;
  const std::int32_t* const begins = ctx.planning() ? nullptr : plans_->lists_for(ctx.device, layer_, positions);
  const auto copied = [&](std::size_t before, std::int64_t of_head) {
    const Tensor t = scratch.tensor({1, heads, of_head}, Dtype::i32);
    if (begins != nullptr) ctx.queue().copy_to_device(t.data(), begins + before + first * of_head, t.bytes());
    return t;
  };
  kernels::BlockLists lists{.block = static_cast<std::int32_t>(plans_->pattern().block),
                            .key_begin = copied(0, blocks + 1),
                            .keys = copied(host->key_begin.size(), host->entries)};
  if (!from_keys) return lists;
  lists.query_begin = scratch.like(lists.key_begin);
  lists.queries = scratch.like(lists.keys);
  ops::run(ctx, kernels::BlockListsArgs{.lists = lists});
  return lists;
}

AttentionMixer::Terms AttentionMixer::terms_of(const Context& ctx) const {
  const auto of = [](const Parameter* p) { return p != nullptr ? Table{p->value, p->gradient} : Table{}; };
  return {{sink_of(ctx), sink_of(ctx, true)}, of(labels_), of(global_labels_)};
}

Tensor AttentionMixer::sink_of(const Context& ctx, bool gradient) const {
  if (!has_sink()) return {};
  const std::int64_t heads = config_.heads / ctx.sequence_ranks(), first = ctx.sequence_rank() * heads;
  return (gradient ? sink_->gradient : sink_->master).slice(0, first, first + heads);
}

void AttentionMixer::backward_positions(Context& ctx, const QkvHeads& in, const Attended& attended,
                                        const Tensor& d_heads, const Terms& terms, const Tensor& dqkv) const {
  const std::int64_t heads = in.q.size(2), seq = in.q.size(1), size = config_.value_size;
  const QkvHeads grad = heads_of(dqkv, heads);
  if (const std::int64_t added = config_.global.added; added > 0) {
    ops::fill_zero(ctx, dqkv);  // the queries of added rows
    const auto own = [&](const Tensor& all) { return all.slice(1, added, seq); };
    return backward_in_pieces(ctx, Side::positions, {own(in.q), in.k, in.v}, terms, own(attended.o), attended.lse,
                              {own(d_heads), own(dqkv.slice(-1, 0, heads * config_.key_size)), grad.k, grad.v});
  }
  Scratch scratch(ctx);
  const auto plan = plans_->plan(layer_, seq, ctx.sequence_rank(), ctx.sequence_ranks());
  ops::run(ctx, kernels::AttentionBackwardArgs{.plan = plan.get(),
                                               .q = in.q,
                                               .k = in.k,
                                               .v = in.v,
                                               .o = attended.o.split_last(heads, size),
                                               .lse = attended.lse,
                                               .dout = d_heads.split_last(heads, size),
                                               .dq = grad.q,
                                               .dk = grad.k,
                                               .dv = grad.v,
                                               .scale = scale(),
                                               .bounds = of_documents(ctx),
                                               .lists = lists_of(ctx, seq, scratch, true),
                                               .labels = distance_labels(terms.labels),
                                               .dtable = distances_in(terms.labels.gradient),
                                               .sink = terms.sink.value,
                                               .dsink = terms.sink.gradient});
}

void AttentionMixer::backward(Context& ctx, const Tensor& dout, const Tensor& dnormed, Tape& tape) const {
  const Tensor o = tape.pop(), global_key_value = tape.pop(), global_query = tape.pop(), rows = tape.pop(),
               qk = tape.pop(), qkv = tape.pop(), normed = tape.pop(),
               global_lse = config_.global.given() ? tape.pop() : Tensor{}, lse = tape.pop(), o_heads = tape.pop();
  const int ranks = ctx.sequence_ranks();
  const std::int64_t heads = config_.heads / ranks;
  Scratch scratch(ctx);
  const Tensor dqkv = scratch.tensor({normed.size(0), normed.size(1), query_key_value_.out()}, ctx.compute);
  const QkvHeads in = heads_of(qkv, heads, qk);
  const GlobalInput global = global_input(in, rows, global_query, global_key_value);
  const GlobalGradients of_global = global_gradients(ctx, global, scratch);
  {
    Scratch inner(ctx);
    const Tensor d_heads = inner.like(o_heads), dqkv_heads = ranks == 1 ? dqkv : inner.like(qkv);
    {
      Scratch positions(ctx);
      const Tensor d_o = positions_like(ctx, d_heads, positions);
      output_.gradients_but_bias(ctx, o, dout, d_o);
      positions_to_heads(ctx, d_o, {output_.in()}, d_heads);
    }
    backward_globally(ctx, global, {o_heads, lse, global_lse}, d_heads, of_global);
    backward_positions(ctx, in, {o_heads, lse, global_lse}, d_heads, terms_of(ctx), dqkv_heads);
    if (of_global.qkv.given()) ops::run(ctx, kernels::AddArgs{of_global.qkv, dqkv_heads});
    transform_back(ctx, qkv, heads, dqkv_heads);
    heads_to_positions(ctx, dqkv_heads, column_groups(), dqkv);
  }
  add_bias_gradient(ctx, dqkv, qkv.size(1));
  query_key_value_.gradients_but_bias(ctx, normed, dqkv, dnormed);
  add_global_gradients(ctx, global, of_global, normed, dnormed);
}

// A bias of the keys shifts all scores of a query alike, so its gradient is zero: every row of dS adds up to 0. Every
// row of P adds up to 1, so the columns of dv add up to those of do, and these to the gradient of W_p's bias times W_p.
// Neither holds for part of a sequence, but a sum over ranks is one over sequences. All ranks must take the same way,
// hence the plan of all heads. A sink takes part of every row's sum, so that neither holds with
// one; a query may see no key of its document; global rows may read other values; and several heads may share a value.
void AttentionMixer::add_bias_gradient(Context& ctx, const Tensor& dqkv, std::int64_t positions) const {
  if (!config_.biased) return;
  const std::int64_t queries = config_.heads * config_.key_size,
                     keys_end = queries + config_.key_heads * config_.key_size, all = query_key_value_.out();
  // Then a bias of the keys does not shift scores alike, or shifts them against the sink.
  const bool transformed = config_.transform.any() || has_sink();
  const bool rows_of_one = config_.output_biased && !has_sink() && !ctx.documents.given() && !config_.global.own &&
                           config_.global.added == 0 && !shares_keys() &&
                           every_query_sees_a_key(*plans_->plan(layer_, positions));
  if (transformed && !rows_of_one) return query_key_value_.bias_gradient_of(ctx, dqkv, 0, all);
  query_key_value_.bias_gradient_of(ctx, dqkv, 0, transformed ? keys_end : queries);
  if (rows_of_one)
    output_.column_sums_of_dx(ctx, query_key_value_.bias_gradient().slice(0, keys_end, all));
  else
    query_key_value_.bias_gradient_of(ctx, dqkv, keys_end, all);
}

AttentionMixer::QkvHeads AttentionMixer::project(Context& ctx, const Tensor& normed, std::int64_t first,
                                                 Scratch& scratch) const {
  const Tensor qkv = scratch.tensor({normed.size(0), normed.size(1), query_key_value_.out()}, ctx.compute);
  query_key_value_.apply(ctx, normed, qkv);
  return heads_of(qkv, config_.heads, transform(ctx, qkv, config_.heads, first, scratch));
}

std::vector<std::int64_t> AttentionMixer::column_groups() const {
  return {config_.heads * config_.key_size, config_.key_heads * config_.key_size,
          config_.key_heads * config_.value_size};
}

std::unique_ptr<BranchCache> AttentionMixer::make_cache(Context& ctx, Scratch& memory, std::int64_t batch,
                                                        std::int64_t positions) const {
  auto cache = std::make_unique<AttentionCache>();
  cache->plan = plans_->decode_plan(layer_, std::min(positions, config_.segment));
  const std::int64_t rows = cache->plan->rows;
  cache->rows = {cache->plan.get(), memory.tensor({batch, rows, config_.key_size}, ctx.compute),
                 memory.tensor({batch, rows, config_.value_size}, ctx.compute)};
  return cache;
}

void AttentionMixer::decode(Context& ctx, const Tensor& normed, const Tensor& out, BranchCache* cache,
                            std::int64_t position) const {
  const kernels::DecodeCache& rows = static_cast<const AttentionCache&>(*cache).rows;
  // A pattern begins anew with every segment, as in training: later ones take the places of the first.
  Context own = ctx;
  if (ctx.segment_position != nullptr) own.position = ctx.segment_position;
  position %= config_.segment;
  Scratch scratch(own);
  const QkvHeads in = project(own, normed, position, scratch);
  const Tensor o = scratch.tensor({normed.size(0), 1, output_.in()}, own.compute);
  ops::run(own, kernels::AppendArgs{.cache = rows, .k = in.k, .v = in.v, .first = position, .first_at = own.position});
  ops::run(own, kernels::DecodeArgs{.cache = rows,
                                    .q = in.q,
                                    .o = o.split_last(config_.heads, config_.value_size),
                                    .position = position,
                                    .scale = scale(),
                                    .position_at = own.position,
                                    .sink = sink_of(own)});
  output_.apply(own, o, out);
}

}  // namespace longstride
