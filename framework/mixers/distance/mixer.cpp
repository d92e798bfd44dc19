#include "framework/mixers/distance/mixer.h"

#include <cmath>

#include "framework/mixers/distance/compression/reconstruction.h"
#include "framework/ops/basic.h"
#include "framework/ops/linear.h"
#include "kernels/copy_rows/copy_rows.h"
#include "kernels/span_projection/span_projection.h"
#include "kernels/sum_loss/sum_loss.h"

namespace longstride {

using kernels::QueryKeyArgs;
using kernels::QueryKeyBackwardArgs;

namespace {

// (1, key rows, heads) of any type as [head][key row].
std::vector<std::vector<double>> by_head(const Tensor& probabilities) {
  std::vector<std::vector<double>> out(static_cast<std::size_t>(probabilities.size(2)));
  kernels::with_float_type(probabilities.dtype(), [&](auto zero) {
    const auto* p = probabilities.as<const decltype(zero)>();
    for (std::size_t head = 0; head < out.size(); ++head)
      for (std::int64_t j = 0; j < probabilities.size(1); ++j)
        out[head].push_back(static_cast<double>(
            p[j * probabilities.stride(1) + static_cast<std::int64_t>(head) * probabilities.stride(2)]));
  });
  return out;
}

}  // namespace

DistanceMixer::DistanceMixer(ParameterSet& parameters, StateSet& states, const std::string& name,
                             const DistanceMixerConfig& config, const SharedDistance& shared,
                             std::shared_ptr<const RememberedPositions> remembered,
                             std::shared_ptr<const Windows> windows)
    : config_(config),
      query_key_value_(parameters, name + ".query_key_value", config.shape.width,
                       {query_width(), query_width(), config.shape.heads * config.value_size}, config.shape.deviation,
                       config.biased),
      term_(parameters, name, config.shape, config.distance, shared),
      span_(config.distance.span.given()
                ? &parameters.add(name + ".span", {config.shape.heads}, {0, config.distance.span.initial})
                : nullptr),
      output_(parameters, name + ".output", config.shape.heads * config.value_size, config.shape.width,
              config.output_deviation, config.output_biased),
      memory_(states, name, config.shape.width, config.memory),
      compressor_(parameters, name + ".compress", config.shape.width, config.compress_deviation, config.memory),
      remembered_(std::move(remembered)),
      windows_(std::move(windows)) {
  if (span_ != nullptr) span_->limits = Limits{0, 1};
}

Tensor DistanceMixer::keys(const Tensor& kv) const {
  return kv.slice(-1, 0, query_width()).split_last(config_.shape.heads, config_.shape.key_size);
}

Tensor DistanceMixer::values(const Tensor& kv) const {
  const std::int64_t begin = query_width();
  return kv.slice(-1, begin, begin + config_.shape.heads * config_.value_size)
      .split_last(config_.shape.heads, config_.value_size);
}

void DistanceMixer::forward(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape) const {
  forward_with(ctx, normed, out, tape, tape, {});
}

void DistanceMixer::forward_keeping(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape& tape) const {
  forward_with(ctx, normed, out, nullptr, &tape, {});
}

void DistanceMixer::forward_again(Context& ctx, const Tensor& normed, const BranchOutput& out, const KeptResults& kept,
                                  Tape& tape) const {
  forward_with(ctx, normed, out, &tape, nullptr, {kept.at(0), kept.at(1)});
}

kernels::DistanceScores DistanceMixer::read(const Projected& projected) const {
  kernels::DistanceScores s = visible(queries(projected.q), keys(projected.kv));
  if (span_ != nullptr) add_span(s, span_->master);
  return s;
}

std::int64_t DistanceMixer::unread_rows(const Context& ctx, const Projected& projected) const {
  if (!skips_rows() || ctx.device != Device::cpu || ctx.planning()) return 0;
  return read(projected).unread_keys();
}

void DistanceMixer::project_keys_values(Context& ctx, const Tensor& x, const Tensor& kv) const {
  const std::int64_t width = query_width(), all = query_key_value_.out();
  ops::linear(ctx, x, query_key_value_.weight().value.slice(0, width, all),
              bias_of(query_key_value_.bias(), width, all), kv);
}

// One product for the segment's queries, one for the keys and values of all positions.
DistanceMixer::Projected DistanceMixer::project(Context& ctx, const Tensor& segment, const Tensor& joined,
                                                Scratch& scratch, Tape* tape) const {
  const std::int64_t batch = segment.size(0), all = query_key_value_.out(), width = query_width();
  const Tensor weight = query_key_value_.weight().value, bias = query_key_value_.bias();
  if (memory_.rows() == 0) {
    const Tensor qkv = scratch.tensor({batch, segment.size(1), all}, ctx.compute, tape);
    ops::linear(ctx, segment, weight, bias, qkv);
    return {qkv.slice(-1, 0, width), qkv.slice(-1, width, all)};
  }
  const Projected made = {scratch.tensor({batch, segment.size(1), width}, ctx.compute, tape),
                          scratch.tensor({batch, joined.size(1), all - width}, ctx.compute, tape)};
  ops::linear(ctx, segment, weight.slice(0, 0, width), bias_of(bias, 0, width), made.q);
  if (skips_rows())
    ops::run(ctx, kernels::SpanProjectionArgs{.read = read(made),
                                              .x = joined,
                                              .weight = weight.slice(0, width, all),
                                              .y = made.kv,
                                              .bias = bias_of(bias, width, all)});
  else
    project_keys_values(ctx, joined, made.kv);
  return made;
}

// Positions count from the first row of the memory.
DistanceMixer::Projected DistanceMixer::transform(Context& ctx, const Projected& in, Scratch& scratch,
                                                  Tape* tape) const {
  if (!config_.transform.any()) return in;
  const std::int64_t batch = in.q.size(0);
  const Projected made = {scratch.tensor({batch, in.q.size(1), query_width()}, ctx.compute, tape),
                          scratch.tensor({batch, in.kv.size(1), query_width()}, ctx.compute, tape)};
  ops::run(ctx, QueryKeyArgs{
                    .transform = config_.transform, .x = queries(in.q), .y = queries(made.q), .first = memory_.rows()});
  const std::int64_t unread = unread_rows(ctx, in), all = in.kv.size(1);
  ops::run(ctx, QueryKeyArgs{.transform = config_.transform,
                             .x = keys(in.kv.slice(1, unread, all)),
                             .y = keys(made.kv.slice(1, unread, all)),
                             .first = unread});
  return made;
}

void DistanceMixer::transform_back(Context& ctx, const Projected& in, const Projected& gradients) const {
  if (!config_.transform.any()) return;
  const std::int64_t unread = unread_rows(ctx, in), all = in.kv.size(1);
  const Tensor dq = queries(gradients.q), dk = keys(gradients.kv.slice(1, unread, all));
  ops::run(ctx, QueryKeyBackwardArgs{
                    .transform = config_.transform, .dy = dq, .x = queries(in.q), .dx = dq, .first = memory_.rows()});
  ops::run(
      ctx,
      QueryKeyBackwardArgs{
          .transform = config_.transform, .dy = dk, .x = keys(in.kv.slice(1, unread, all)), .dx = dk, .first = unread});
}

kernels::DistanceScores DistanceMixer::visible(const Tensor& q, const Tensor& k) const {
  const DistanceConfig& c = config_.distance;
  kernels::DistanceScores s{.q = q, .k = k};
  s.window = windows_->of(config_.layer);
  s.self = c.self;
  if (c.dilated_heads > 0)
    for (std::int64_t h = 0; h < config_.shape.heads; ++h)
      s.dilation.push_back(static_cast<std::int32_t>(c.dilation_of(config_.layer, h)));
  return s;
}

void DistanceMixer::add_span(kernels::DistanceScores& scores, const Tensor& spans) const {
  scores.span = spans;
  scores.longest_span = static_cast<double>(config_.distance.span.longest);
  scores.ramp = static_cast<double>(config_.distance.span.ramp);
}

kernels::DistanceScores DistanceMixer::mask(std::int64_t positions, const Tensor& spans) const {
  const std::int64_t heads = config_.shape.heads, size = config_.shape.key_size;
  kernels::DistanceScores s = visible(Tensor(nullptr, Dtype::f32, {1, positions, heads, size}),
                                      Tensor(nullptr, Dtype::f32, {1, memory_.rows() + positions, heads, size}));
  if (span_ != nullptr && spans.given()) add_span(s, spans);
  return s;
}

kernels::DistanceScores DistanceMixer::shapes(std::int64_t positions) const {
  kernels::DistanceScores s = mask(positions);
  s.table = term_.table_shape(s.k.size(1));
  s.dropout.p = static_cast<float>(config_.distance.dropout);
  if (config_.documents) s.bounds.begin = s.bounds.end = Tensor(nullptr, Dtype::i32, {1, 1, positions});
  return s;
}

kernels::DistanceScores DistanceMixer::scores(const Context& ctx, const Saved& in, const SeenRows& seen) const {
  const DistanceConfig& c = config_.distance;
  kernels::DistanceScores s = visible(queries(in.transformed.q), keys(in.transformed.kv));
  s.table = in.table;
  s.content_bias = term_.content_bias();
  s.position_bias = term_.position_bias();
  if (span_ != nullptr) add_span(s, span_->master);
  s.first_key = seen.first_key;
  s.bounds = seen.bounds;
  s.scale = 1 / std::sqrt(static_cast<double>(config_.shape.key_size));
  if (ctx.step != nullptr)
    s.dropout = {.p = static_cast<float>(c.dropout),
                 .seed = ctx.seed,
                 .layer = config_.dropout_layer,
                 .step = ctx.step,
                 .first_sequence = ctx.first_row};
  return s;
}

void DistanceMixer::add_parameter_losses(Context& ctx) const {
  const LearnedSpans& c = config_.distance.span;
  if (c.loss <= 0 || !ctx.auxiliary.sums.given() || !ctx.auxiliary.once) return;
  const double longest = static_cast<double>(c.longest);
  ops::run(ctx, kernels::SumLossArgs{.x = span_->master,
                                     .gradient = span_->gradient,
                                     .loss = ctx.auxiliary.sums.slice(0, config_.span_loss, config_.span_loss + 1),
                                     .factor = c.loss * longest / static_cast<double>(config_.shape.heads),
                                     .loss_scale = ctx.loss_scale});
}

DistanceMixer::Attended DistanceMixer::attend(Context& ctx, const Saved& in, Scratch& scratch, Tape* tape) const {
  const std::int64_t batch = in.projected.q.size(0), seq = in.projected.q.size(1), heads = config_.shape.heads;
  const Attended out = {scratch.tensor({batch, seq, heads * config_.value_size}, ctx.compute, tape),
                        scratch.tensor({batch, heads, seq}, ctx.exact, tape)};
  Scratch inner(ctx);
  ops::run(ctx, kernels::DistanceAttentionArgs{.scores = scores(ctx, in, remembered_->seen(ctx, inner)),
                                               .v = values(in.projected.kv),
                                               .o = out.o.split_last(heads, config_.value_size),
                                               .lse = out.lse});
  return out;
}

DistanceMixer::Saved DistanceMixer::before_attention(Context& ctx, const Tensor& normed, Scratch& scratch,
                                                     Tape* tape) const {
  Saved made;
  made.joined = memory_.join(ctx, normed, scratch, tape);
  made.projected = project(ctx, normed, made.joined, scratch, tape);
  made.transformed = transform(ctx, made.projected, scratch, tape);
  made.table = term_.table(ctx, made.joined.size(1), scratch, tape);
  return made;
}

void DistanceMixer::forward_with(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape, Tape* kept_on,
                                 Attended known) const {
  Scratch scratch(ctx);
  Saved made = before_attention(ctx, normed, scratch, tape);
  made.attended = known.o.given() ? known : attend(ctx, made, scratch, kept_on);
  if (!known.o.given()) remember(ctx, made);
  if (tape != nullptr)
    for (const Tensor& t : {normed, made.joined, made.projected.q, made.projected.kv, made.transformed.q,
                            made.transformed.kv, made.table, made.attended.o, made.attended.lse})
      tape->push(t);
  else if (kept_on != nullptr)
    for (const Tensor& t : {made.attended.o, made.attended.lse}) kept_on->push(t);
  if (!out.given()) return;
  const auto [to, residual] = out.place();
  output_.apply(ctx, made.attended.o, to, residual);
}

void DistanceMixer::backward(Context& ctx, const Tensor& dout, const Tensor& dnormed, Tape& tape) const {
  Saved made;
  made.attended.lse = tape.pop();
  made.attended.o = tape.pop();
  made.table = tape.pop();
  made.transformed.kv = tape.pop();
  made.transformed.q = tape.pop();
  made.projected.kv = tape.pop();
  made.projected.q = tape.pop();
  made.joined = tape.pop();
  const Tensor normed = tape.pop();

  Scratch scratch(ctx);
  const Projected gradients = gradient_tensors(ctx, made, scratch);
  {
    Scratch inner(ctx);
    const Tensor d_o = inner.like(made.attended.o), dtable = term_.gradient_for(ctx, made.table, inner);
    output_.gradients_but_bias(ctx, made.attended.o, dout, d_o);
    const std::int64_t heads = config_.shape.heads, size = config_.value_size;
    ops::run(ctx, kernels::DistanceAttentionBackwardArgs{.scores = scores(ctx, made, remembered_->seen(ctx, inner)),
                                                         .v = values(made.projected.kv),
                                                         .o = made.attended.o.split_last(heads, size),
                                                         .lse = made.attended.lse,
                                                         .dout = d_o.split_last(heads, size),
                                                         .dq = queries(gradients.q),
                                                         .dk = keys(gradients.kv),
                                                         .dv = values(gradients.kv),
                                                         .dtable = dtable,
                                                         .dcontent_bias = term_.content_gradient(),
                                                         .dposition_bias = term_.position_gradient(),
                                                         .dspan = span_ != nullptr ? span_->gradient : Tensor{}});
    term_.add_gradient(ctx, dtable);
  }
  if (compressor_.learns() && config_.memory.reconstruction > 0 && ctx.auxiliary.sums.given()) reconstruct(ctx, made);
  transform_back(ctx, made.projected, gradients);
  backward_projections(ctx, normed, made.joined, gradients, dnormed);
}

void DistanceMixer::remember(Context& ctx, const Saved& made) const {
  Scratch scratch(ctx);
  const Tensor evicted = memory_.evicted(made.joined);
  Tensor compressed;
  if (evicted.given()) {
    const Tensor usage = compressor_.reads_usage()
                             ? memory_.evicted(received(ctx, made, remembered_->seen(ctx, scratch), scratch))
                             : Tensor{};
    compressed = compressor_.compress(ctx, evicted, usage, scratch);
  }
  memory_.keep(ctx, made.joined, compressed);
}

// The gradients of values are these sums where the gradient of every output is 1. Values have eight equal elements,
// which is what the fast kernels for 16-bit types take at least.
Tensor DistanceMixer::received(Context& ctx, const Saved& made, const SeenRows& seen, Scratch& scratch) const {
  constexpr std::int64_t elements = 8;
  const Tensor q = queries(made.transformed.q), k = keys(made.transformed.kv);
  const std::int64_t batch = k.size(0), all = k.size(1), heads = config_.shape.heads;
  const Tensor sums = scratch.tensor({batch, all, heads, elements}, ctx.compute);
  Scratch inner(ctx);
  const Tensor dq = inner.tensor(q.shape(), ctx.compute), dk = inner.tensor(k.shape(), ctx.compute),
               ones = inner.tensor({elements}, ctx.compute);
  ops::run(ctx, kernels::FillArgs{ones, 1.0});
  const auto everywhere = [&](std::int64_t positions) {
    return Tensor(ones.data(), ctx.compute, {batch, positions, heads, elements}, {0, 0, 0, 1});
  };
  kernels::DistanceScores asked = scores(ctx, made, seen);
  asked.dropout = {};
  ops::run(ctx, kernels::DistanceAttentionBackwardArgs{.scores = asked,
                                                       .v = everywhere(all),
                                                       .o = everywhere(q.size(1)),
                                                       .lse = made.attended.lse,
                                                       .dout = everywhere(q.size(1)),
                                                       .dq = dq,
                                                       .dk = dk,
                                                       .dv = sums});
  return Tensor(sums.data(), ctx.compute, {batch, all, heads}, {sums.stride(0), sums.stride(1), elements});
}

// A query alone, with the key rows up to its own: what every row receives from all queries is then its probability.
void DistanceMixer::show_probabilities(Context& ctx, const Tensor& normed, const std::vector<std::int64_t>& queries,
                                       const SeeProbabilities& see) const {
  Scratch scratch(ctx);
  const Saved all = before_attention(ctx, normed, scratch, nullptr);
  for (std::size_t n = 0; n < queries.size(); ++n) {
    Scratch inner(ctx);
    const std::int64_t query = queries[n], keys = memory_.rows() + query + 1;
    const auto alone = [&](const Projected& x) {
      return Projected{x.q.slice(1, query, query + 1), x.kv.slice(1, 0, keys)};
    };
    Saved one = {all.joined, alone(all.projected), alone(all.transformed), all.table, {}};
    Context own = ctx;
    if (ctx.documents.given())
      for (Tensor* bounds : {&own.documents.begin, &own.documents.end}) *bounds = bounds->slice(2, query, query + 1);
    one.attended = attend(own, one, inner, nullptr);
    const Tensor shown = received(own, one, remembered_->seen(own, inner), inner);
    if (!ctx.planning()) see(n, by_head(shown));
  }
}

// Queries and keys have their norms, but no rotation by their position. A row of several documents has no part: the
// last query sees what leaves the memory only if all are of one.
void DistanceMixer::reconstruct(Context& ctx, const Saved& made) const {
  Scratch scratch(ctx);
  const Tensor evicted = memory_.evicted(made.joined);
  if (!evicted.given()) return;
  const Tensor rows = compressor_.compress(ctx, evicted, {}, scratch);
  const std::int64_t batch = rows.size(0), positions = made.projected.q.size(1), width = query_width(),
                     all = query_key_value_.out();
  const Tensor weight = query_key_value_.weight().value.slice(0, width, all);
  const Tensor kv = scratch.tensor({batch, rows.size(1), all - width}, ctx.compute), dkv = scratch.like(kv),
               old_kv = memory_.evicted(made.projected.kv), drows = scratch.like(rows);
  project_keys_values(ctx, rows, kv);
  const kernels::QueryKeyTransform content{config_.transform.normalise, 0};
  const auto of_content = [&](const Tensor& x) {
    if (!content.any()) return x;
    const Tensor y = scratch.tensor(x.shape(), ctx.compute);
    ops::run(ctx, QueryKeyArgs{.transform = content, .x = x, .y = y});
    return y;
  };
  const double terms = static_cast<double>(batch * positions * config_.shape.heads * config_.value_size);
  reconstruct_attention(
      ctx, {.q = of_content(queries(made.projected.q)),
            .old_keys = of_content(keys(old_kv)),
            .old_values = values(old_kv),
            .keys = of_content(keys(kv)),
            .values = values(kv),
            .dkeys = keys(dkv),
            .dvalues = values(dkv),
            .total = ctx.auxiliary.sums.slice(0, config_.reconstruction_loss, config_.reconstruction_loss + 1),
            .scale = config_.memory.reconstruction * ctx.auxiliary.share / terms,
            .first_key = remembered_->first_of_last(ctx, scratch),
            .last = config_.memory.compressed});
  if (content.any())
    ops::run(ctx, QueryKeyBackwardArgs{.transform = content, .dy = keys(dkv), .x = keys(kv), .dx = keys(dkv)});
  ops::linear_backward_input(ctx, dkv, weight, drows);
  compressor_.add_gradient(ctx, evicted, drows);
}

// With a memory dq lies within a tensor like that of a segment's qkv, in which backward_projections joins the gradients
// of the segment's own keys and values to it.
DistanceMixer::Projected DistanceMixer::gradient_tensors(Context& ctx, const Saved& made, Scratch& scratch) const {
  const Tensor& kv = made.projected.kv;
  const std::int64_t width = query_width(), all = query_key_value_.out();
  const Tensor qkv = scratch.tensor({kv.size(0), made.projected.q.size(1), all}, ctx.compute);
  const Tensor own = qkv.slice(-1, width, all);
  if (memory_.rows() == 0) return {qkv.slice(-1, 0, width), own};
  return {qkv.slice(-1, 0, width), scratch.tensor(kv.shape(), ctx.compute)};
}

void DistanceMixer::backward_projections(Context& ctx, const Tensor& segment, const Tensor& joined,
                                         const Projected& gradients, const Tensor& dsegment) const {
  const std::int64_t width = query_width(), all = query_key_value_.out(), rows = memory_.rows(),
                     positions = segment.size(1);
  const Tensor &dq = gradients.q, dqkv(dq.data(), dq.dtype(), {dq.size(0), positions, all});
  if (rows == 0) return query_key_value_.gradients(ctx, segment, dqkv, dsegment);
  const Tensor weight = query_key_value_.weight().gradient, bias = query_key_value_.bias_gradient();
  ops::linear_backward_weight(ctx, dq, segment, weight.slice(0, 0, width), bias_of(bias, 0, width));
  const Tensor dweight = weight.slice(0, width, all), dbias = bias_of(bias, width, all);
  if (skips_rows())
    ops::run(ctx, kernels::SpanProjectionBackwardArgs{
                      .read = read(gradients), .dy = gradients.kv, .x = joined, .dweight = dweight, .dbias = dbias});
  else
    ops::linear_backward_weight(ctx, gradients.kv, joined, dweight, dbias);
  ops::run(ctx, kernels::CopyRowsArgs{gradients.kv.slice(1, rows, rows + positions), dqkv.slice(-1, width, all)});
  ops::linear_backward_input(ctx, dqkv, query_key_value_.weight().value, dsegment);
}

}  // namespace longstride
