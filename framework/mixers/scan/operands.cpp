// The operands of a layer's scan, from the products of its input, and the gradients of these.
#include <cmath>

#include "framework/mixers/scan/mixer.h"
#include "framework/ops/basic.h"
#include "kernels/query_key/query_key.h"
#include "kernels/scan_gates/scan_gates.h"
#include "kernels/short_convolution/short_convolution.h"

namespace longstride {
namespace {

constexpr double channel_factor = 1.0 / 16;  // log a per channel (Yang et al. 2024)

}  // namespace

// Features take what attention would. Other forms have no positions of their own but the decay.
kernels::QueryKeyTransform ScanMixer::query_transform() const {
  if (config_.scan.has_features()) return config_.transform;
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
  expand(ctx, pace, out, scratch);
  return out;
}

void ScanMixer::convolve(Context& ctx, const Projected& in, Operands& out, Scratch& scratch) const {
  out.mixed = in.qkv;
  if (added_.convolution != nullptr) {
    out.mixed = scratch.like(in.qkv);
    ops::run(ctx, kernels::ShortConvolutionArgs{.x = in.qkv,
                                                .weight = added_.convolution->master,
                                                .y = out.mixed,
                                                .before = out.states.rows,
                                                .after = out.states.next_rows,
                                                .begin = ctx.documents.begin});
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
    const Shape shape = channel ? Shape{batch, seq, config_.heads, config_.key_size} : in.decay.shape();
    out.own_decay = scratch.tensor(shape, ctx.exact);
    ops::run(ctx, kernels::ScanGatesArgs{.gate = channel ? kernels::ScanGate::log_sigmoid : kernels::ScanGate::softplus,
                                         .x = in.decay,
                                         .y = out.own_decay,
                                         .rate = channel ? Tensor{} : added_.decay_rate->master,
                                         .bias = added_.decay_bias->master,
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

void ScanMixer::expand(Context& ctx, Pace pace, Operands& out, Scratch& scratch) const {
  out.phi_q = out.q, out.phi_k = out.k;
  if (!config_.scan.has_features()) return;
  const std::int64_t batch = out.q.size(0), seq = out.q.size(1);
  out.phi_q = scratch.tensor({batch, seq, config_.heads, config_.scan.count}, ctx.compute);
  out.phi_k = scratch.like(out.phi_q);
  kernels::FeaturesArgs args{.kind = feature_kind(), .x = out.q, .projection = out.projection, .features = out.phi_q};
  ops::run(ctx, args);
  args.x = out.k, args.features = out.phi_k;
  args.keys = true;
  args.begin = ctx.documents.begin;
  if (keeps_c(pace)) {
    args.decay = scratch.tensor({batch, seq, config_.heads}, ctx.exact);
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

void ScanMixer::backward_features(Context& ctx, const Operands& made, const ScanGradients& d) const {
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
  if (added_.convolution != nullptr)
    ops::run(ctx, kernels::ShortConvolutionBackwardArgs{.dy = d.dmixed,
                                                        .x = in.qkv,
                                                        .weight = added_.convolution->master,
                                                        .dx = gradients.qkv,
                                                        .dweight = added_.convolution->gradient,
                                                        .before = made.states.rows,
                                                        .begin = ctx.documents.begin});
  if (in.decay.given()) {
    const bool channel = config_.scan.decay == ScanDecay::channel;
    ops::run(ctx, kernels::ScanGatesBackwardArgs{
                      .gate = channel ? kernels::ScanGate::log_sigmoid : kernels::ScanGate::softplus,
                      .dy = d.decay,
                      .x = in.decay,
                      .dx = gradients.decay,
                      .rate = channel ? Tensor{} : added_.decay_rate->master,
                      .bias = added_.decay_bias->master,
                      .drate = channel ? Tensor{} : added_.decay_rate->gradient,
                      .dbias = added_.decay_bias->gradient,
                      .factor = channel_factor});
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
  query_key_value_.gradients(ctx, normed, d.qkv, dnormed);
  Context plain = ctx.without_fp8();
  const auto add = [&](Context& own, const Linear& map, const Tensor& dy) {
    Scratch scratch(ctx);
    const Tensor dx = scratch.like(dnormed);
    map.gradients(own, normed, dy, dx);
    ops::run(ctx, kernels::AddArgs{.from = dx, .to = dnormed});
  };
  if (added_.decay_low) {
    added_.decay->gradients(plain, in.decay_low, d.decay, d.decay_low);
    add(plain, *added_.decay_low, d.decay_low);
  } else if (added_.decay) {
    add(plain, *added_.decay, d.decay);
  }
  if (added_.beta) add(plain, *added_.beta, d.beta);
  if (added_.gate) add(ctx, *added_.gate, d.gate);
}

}  // namespace longstride
