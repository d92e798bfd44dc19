// The operands of a layer's scan, from the products of its input, and the gradients of these.
#include <cmath>

#include "framework/layers/sequence_exchange.h"
#include "framework/mixers/scan/mixer.h"
#include "framework/ops/basic.h"
#include "kernels/column_sum/column_sum.h"
#include "kernels/copy_rows/copy_rows.h"
#include "kernels/query_key/query_key.h"
#include "kernels/repeat_heads/repeat_heads.h"
#include "kernels/scale_heads/scale_heads.h"
#include "kernels/scan_gates/scan_gates.h"
#include "kernels/short_convolution/short_convolution.h"

namespace longstride {
namespace {

constexpr double channel_factor = 1.0 / 16;  // log a per channel (Yang et al. 2024)

}  // namespace

// Features take what attention would. Other forms have no positions of their own but the decay.
kernels::QueryKeyTransform ScanMixer::query_transform() const {
  if (config_.scan.has_features()) return config_.transform;
  if (config_.scan.time_step) return {};
  const auto size = static_cast<double>(config_.key_size);
  return {delta(), 0, delta() ? 1 / size : 1 / std::sqrt(size)};
}

kernels::QueryKeyTransform ScanMixer::key_transform() const {
  if (config_.scan.has_features()) return config_.transform;
  return {delta(), 0, delta() ? 1 / std::sqrt(static_cast<double>(config_.key_size)) : 1.0};
}

kernels::FeatureKind ScanMixer::feature_kind() const {
  switch (config_.scan.features) {
    case ScanFeatures::trigonometric:
      return kernels::FeatureKind::trigonometric;
    case ScanFeatures::relu:
      return kernels::FeatureKind::relu;
    default:
      return kernels::FeatureKind::softmax;
  }
}

std::int64_t ScanMixer::rows_of_projection() const {
  return config_.scan.count / kernels::features_of(feature_kind(), 1);
}

Tensor ScanMixer::projection(Context& ctx, Scratch& scratch, Tape* tape) const {
  if (!config_.scan.has_features()) return {};
  const Tensor rows = scratch.tensor({1, rows_of_projection(), config_.key_size}, ctx.exact, tape);
  kernels::DrawProjectionArgs args{.projection = rows, .seed = ctx.seed};
  args.layer = config_.layer;
  args.orthogonal = config_.scan.orthogonal;
  if (const std::int64_t every = config_.scan.redraw; every > 0) {
    args.redraw = static_cast<std::uint32_t>(ctx.trained / every);
    args.step = ctx.step;
    args.every = every;
  }
  ops::run(ctx, args);
  return rows;
}

ScanMixer::Operands ScanMixer::operands(Context& ctx, const Projected& in, const Tensor& projection,
                                        const ScanStates& states, Pace pace, std::int64_t first,
                                        Scratch& scratch) const {
  Operands out;
  out.states = states;
  out.projection = projection;
  convolve(ctx, in, out, scratch);
  transform(ctx, first, out, scratch);
  steer(ctx, in, out, scratch);
  weigh(ctx, in, out, scratch);
  expand(ctx, pace, out, scratch);
  return out;
}

Tensor ScanMixer::own_part(const Context& ctx, const Tensor& all) const {
  const std::int64_t each = all.size(0) / ctx.sequence_ranks(), first = ctx.sequence_rank() * each;
  return all.slice(0, first, first + each);
}

Tensor ScanMixer::own_taps(Context& ctx, const Tensor& all, Scratch& scratch) const {
  const std::int64_t ranks = ctx.sequence_ranks(), taps = all.count() / channels();
  if (ranks == 1) return all;
  const Tensor own =
      scratch.tensor(all.rank() == 1 ? Shape{channels() / ranks} : Shape{channels() / ranks, taps}, all.dtype());
  const Tensor from = all.reshape({1, channels(), taps}), to = own.reshape({1, channels() / ranks, taps});
  std::int64_t at = 0;
  for (const std::int64_t group : column_groups()) {
    const std::int64_t each = group / ranks, first = at * ranks + ctx.sequence_rank() * each;
    ops::run(ctx, kernels::CopyRowsArgs{from.slice(1, first, first + each), to.slice(1, at, at + each)});
    at += each;
  }
  return own;
}

void ScanMixer::add_own_taps(Context& ctx, const Tensor& own, const Tensor& all) const {
  const std::int64_t ranks = ctx.sequence_ranks();
  std::int64_t at = 0;
  for (const std::int64_t group : column_groups()) {
    const std::int64_t each = group / ranks, first = at * ranks + ctx.sequence_rank() * each;
    ops::run(ctx, kernels::AddArgs{.from = own.slice(0, at, at + each), .to = all.slice(0, first, first + each)});
    at += each;
  }
}

void ScanMixer::convolve(Context& ctx, const Projected& in, Operands& out, Scratch& scratch) const {
  out.mixed = in.qkv;
  if (added_.convolution != nullptr) {
    out.mixed = scratch.like(in.qkv);
    Scratch inner(ctx);
    const Parameter* bias = added_.convolution_bias;
    ops::run(ctx,
             kernels::ShortConvolutionArgs{.x = in.qkv,
                                           .weight = own_taps(ctx, added_.convolution->master, inner),
                                           .y = out.mixed,
                                           .before = out.states.rows,
                                           .after = out.states.next_rows,
                                           .begin = ctx.documents.begin,
                                           .bias = bias != nullptr ? own_taps(ctx, bias->master, inner) : Tensor{}});
  }
  out.q = slice_of(out.mixed, 0), out.k = slice_of(out.mixed, 1), out.v = slice_of(out.mixed, 2);
}

void ScanMixer::transform(Context& ctx, std::int64_t first, Operands& out, Scratch& scratch) const {
  const auto transformed = [&](const kernels::QueryKeyTransform& how, const Tensor& x) {
    if (!how.any()) return x;
    const Tensor y = scratch.tensor(x.shape(), x.dtype());
    ops::run(ctx, kernels::QueryKeyArgs{.transform = how,
                                        .x = x,
                                        .y = y,
                                        .first = first,
                                        .first_at = ctx.position,
                                        .begin = ctx.documents.origin()});
    return y;
  };
  out.q = transformed(query_transform(), out.q);
  out.k = transformed(key_transform(), out.k);
}

void ScanMixer::steer(Context& ctx, const Projected& in, Operands& out, Scratch& scratch) const {
  const std::int64_t batch = in.qkv.size(0), seq = in.qkv.size(1);
  if (in.decay.given()) {
    const bool channel = config_.scan.decay == ScanDecay::channel;
    const Shape shape =
        channel ? Shape{batch, seq, in.decay.size(2) / config_.key_size, config_.key_size} : in.decay.shape();
    out.own_decay = scratch.tensor(shape, ctx.exact);
    ops::run(ctx, kernels::ScanGatesArgs{.gate = channel ? kernels::ScanGate::log_sigmoid : kernels::ScanGate::softplus,
                                         .x = in.decay,
                                         .y = out.own_decay,
                                         .rate = channel ? Tensor{} : own_part(ctx, added_.decay_rate->master),
                                         .bias = own_part(ctx, added_.decay_bias->master),
                                         .factor = channel_factor});
  }
  out.decay = out.own_decay;
  if (!in.beta.given()) return;
  out.beta = scratch.tensor(in.beta.shape(), ctx.exact);
  ops::run(ctx, kernels::ScanGatesArgs{.gate = kernels::ScanGate::sigmoid,
                                       .x = in.beta,
                                       .y = out.beta,
                                       .factor = static_cast<double>(config_.scan.beta)});
}

void ScanMixer::weigh(Context& ctx, const Projected& in, Operands& out, Scratch& scratch) const {
  if (!config_.scan.time_step) return;
  out.step = scratch.tensor(in.decay.shape(), ctx.exact);
  ops::run(ctx, kernels::ScanGatesArgs{.gate = kernels::ScanGate::step,
                                       .x = in.decay,
                                       .y = out.step,
                                       .bias = own_part(ctx, added_.decay_bias->master)});
  out.v = scratch.tensor(out.v.shape(), out.v.dtype());
  ops::run(ctx, kernels::ScaleHeadsArgs{slice_of(out.mixed, 2), out.step, out.v});
}

void ScanMixer::expand(Context& ctx, Pace pace, Operands& out, Scratch& scratch) const {
  out.phi_q = out.q, out.phi_k = out.k;
  if (shares_keys()) {
    const Shape every{out.q.size(0), out.q.size(1), out.v.size(2), config_.key_size};
    out.phi_q = scratch.tensor(every, out.q.dtype());
    out.phi_k = scratch.like(out.phi_q);
    ops::run(ctx, kernels::RepeatHeadsArgs{out.q, out.phi_q});
    ops::run(ctx, kernels::RepeatHeadsArgs{out.k, out.phi_k});
  }
  if (!config_.scan.has_features()) return;
  const std::int64_t batch = out.q.size(0), seq = out.q.size(1);
  out.phi_q = scratch.tensor({batch, seq, out.q.size(2), config_.scan.count}, ctx.compute);
  out.phi_k = scratch.like(out.phi_q);
  kernels::FeaturesArgs args{.kind = feature_kind(), .x = out.q, .projection = out.projection, .features = out.phi_q};
  ops::run(ctx, args);
  args.x = out.k, args.features = out.phi_k;
  args.keys = true;
  args.begin = ctx.documents.begin;
  if (keeps_c(pace)) {
    args.decay = scratch.tensor({batch, seq, out.q.size(2)}, ctx.exact);
    args.first_c = out.states.c, args.last_c = out.states.next_c;
    args.states = true;
  } else if (config_.scan.stabilised()) {
    args.direction = kernels::Direction::both;
  }
  ops::run(ctx, args);
  if (!args.decay.given()) return;
  if (out.own_decay.given()) ops::run(ctx, kernels::AddArgs{.from = out.own_decay, .to = args.decay});
  out.decay = args.decay;
}

void ScanMixer::backward_values(Context& ctx, const Operands& made, const Tensor& d_o, const ScanGradients& d) const {
  const Tensor values = slice_of(made.mixed, 2), dv = slice_of(d.dmixed, 2);
  if (made.step.given()) ops::run(ctx, kernels::ScaleHeadsBackwardArgs{dv, values, made.step, dv, d.step});
  if (added_.skip == nullptr) return;
  Scratch scratch(ctx);
  const std::int64_t heads = values.size(2), rows = values.size(0) * values.size(1);
  const Tensor of_rows = scratch.tensor({rows, heads}, ctx.exact);
  ops::run(ctx, kernels::ScaleHeadsBackwardArgs{d_o.split_last(heads, config_.value_size), values,
                                                own_part(ctx, added_.skip->master), dv, of_rows, true});
  ops::run(ctx, kernels::ColumnSumArgs{of_rows, own_part(ctx, added_.skip->gradient)});
}

void ScanMixer::backward_features(Context& ctx, const Operands& made, const ScanGradients& d) const {
  if (shares_keys()) {
    ops::run(ctx, kernels::RepeatHeadsBackwardArgs{d.dphi_q, slice_of(d.dmixed, 0)});
    ops::run(ctx, kernels::RepeatHeadsBackwardArgs{d.dphi_k, slice_of(d.dmixed, 1)});
  }
  if (!config_.scan.has_features()) return;
  kernels::FeaturesBackwardArgs args{.kind = feature_kind(),
                                     .x = made.q,
                                     .projection = made.projection,
                                     .features = made.phi_q,
                                     .dfeatures = d.dphi_q,
                                     .dx = slice_of(d.dmixed, 0)};
  ops::run(ctx, args);
  args.x = made.k, args.features = made.phi_k, args.dfeatures = d.dphi_k, args.dx = slice_of(d.dmixed, 1);
  ops::run(ctx, args);
}

void ScanMixer::backward_operands(Context& ctx, const Projected& in, const Operands& made, const ScanGradients& d,
                                  const Projected& gradients) const {
  const Tensor dq = slice_of(d.dmixed, 0), dk = slice_of(d.dmixed, 1);
  backward_features(ctx, made, d);
  const auto transform_back = [&](const kernels::QueryKeyTransform& how, const Tensor& x, const Tensor& dx) {
    if (how.any())
      ops::run(ctx, kernels::QueryKeyBackwardArgs{
                        .transform = how, .dy = dx, .x = x, .dx = dx, .begin = ctx.documents.origin()});
  };
  transform_back(query_transform(), slice_of(made.mixed, 0), dq);
  transform_back(key_transform(), slice_of(made.mixed, 1), dk);
  backward_convolution(ctx, in, made, d.dmixed, gradients.qkv);
  backward_gates(ctx, in, d, gradients);
}

void ScanMixer::backward_convolution(Context& ctx, const Projected& in, const Operands& made, const Tensor& dmixed,
                                     const Tensor& dqkv) const {
  if (added_.convolution == nullptr) return;
  const bool all = ctx.sequence_ranks() == 1;
  Scratch scratch(ctx);
  const Parameter *taps = added_.convolution, *bias = added_.convolution_bias;
  kernels::ShortConvolutionBackwardArgs args{.dy = dmixed,
                                             .x = in.qkv,
                                             .weight = own_taps(ctx, taps->master, scratch),
                                             .dx = dqkv,
                                             .dweight = taps->gradient,
                                             .before = made.states.rows,
                                             .begin = ctx.documents.begin};
  if (bias != nullptr) args.bias = own_taps(ctx, bias->master, scratch), args.dbias = bias->gradient;
  if (!all) {
    args.dweight = scratch.like(args.weight);
    if (bias != nullptr) args.dbias = scratch.like(args.bias);
    for (const Tensor& t : {args.dweight, args.dbias})
      if (t.given()) ops::fill_zero(ctx, t);
  }
  ops::run(ctx, args);
  if (all) return;
  add_own_taps(ctx, args.dweight, taps->gradient);
  if (bias != nullptr) add_own_taps(ctx, args.dbias, bias->gradient);
}

void ScanMixer::backward_gates(Context& ctx, const Projected& in, const ScanGradients& d,
                               const Projected& gradients) const {
  if (in.decay.given()) {
    const bool channel = config_.scan.decay == ScanDecay::channel;
    kernels::ScanGatesBackwardArgs args{.gate = channel ? kernels::ScanGate::log_sigmoid : kernels::ScanGate::softplus,
                                        .dy = d.decay,
                                        .x = in.decay,
                                        .dx = gradients.decay,
                                        .rate = channel ? Tensor{} : own_part(ctx, added_.decay_rate->master),
                                        .bias = own_part(ctx, added_.decay_bias->master),
                                        .drate = channel ? Tensor{} : own_part(ctx, added_.decay_rate->gradient),
                                        .dbias = own_part(ctx, added_.decay_bias->gradient),
                                        .factor = channel_factor};
    ops::run(ctx, args);
    if (d.step.given()) {
      Scratch scratch(ctx);
      args.gate = kernels::ScanGate::step, args.dy = d.step, args.dx = scratch.like(gradients.decay);
      args.rate = args.drate = {};
      ops::run(ctx, args);
      ops::run(ctx, kernels::AddArgs{.from = args.dx, .to = gradients.decay});
    }
  }
  if (in.beta.given())
    ops::run(ctx, kernels::ScanGatesBackwardArgs{.gate = kernels::ScanGate::sigmoid,
                                                 .dy = d.beta,
                                                 .x = in.beta,
                                                 .dx = gradients.beta,
                                                 .factor = static_cast<double>(config_.scan.beta)});
}

// The gradient of the input is the sum over its maps.
void ScanMixer::backward_projections(Context& ctx, const Tensor& normed, const Projected& in, const Projected& d,
                                     const Tensor& dnormed) const {
  Scratch scratch(ctx);
  const auto mine = [&](const Tensor& of_heads, const std::vector<std::int64_t>& groups) {
    const Tensor out = positions_like(ctx, of_heads, scratch);
    heads_to_positions(ctx, of_heads, groups, out);
    return out;
  };
  Context plain = ctx.without_fp8();
  // Every map's product adds what those before it gave, and the last is in place.
  int left = 1 + static_cast<int>(added_.decay.has_value()) + static_cast<int>(added_.beta.has_value()) +
             static_cast<int>(added_.gate.has_value());
  const Tensor other = left > 1 ? scratch.like(dnormed) : Tensor{};
  Tensor sum;
  const auto add = [&](Context& own, const Linear& map, const Tensor& dy) {
    const Tensor& to = --left % 2 == 0 ? dnormed : other;
    map.gradients(own, normed, dy, to, sum);
    sum = to;
  };
  add(ctx, query_key_value_, mine(d.qkv, column_groups()));
  if (added_.decay) {
    const Tensor decay = mine(d.decay, {added_.decay->out()});
    if (added_.decay_low) {
      added_.decay->gradients(plain, in.decay_low, decay, d.decay_low);
      add(plain, *added_.decay_low, d.decay_low);
    } else {
      add(plain, *added_.decay, decay);
    }
  }
  if (added_.beta) add(plain, *added_.beta, mine(d.beta, {config_.heads}));
  if (added_.gate) add(ctx, *added_.gate, d.gate);
}

}  // namespace longstride
