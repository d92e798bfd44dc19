#include "framework/layers/heads/masked.h"

#include "framework/ops/basic.h"

namespace longstride {
namespace {

// The type of what the norm reads: its kernels know fp16 as a compute type alone.
Dtype stream_type(const Context& ctx) { return ctx.compute == Dtype::f16 ? ctx.exact : ctx.compute; }

// x of another type, or itself.
Tensor in_type(Context& ctx, Scratch& scratch, const Tensor& x, Dtype type) {
  if (x.dtype() == type) return x;
  const Tensor y = scratch.tensor(x.shape(), type);
  ops::copy(ctx, x, y);
  return y;
}

}  // namespace

MaskedHead::MaskedHead(ParameterSet& parameters, const std::string& name, const NextByteConfig& config,
                       kernels::Activation activation, const TokenTable* tied)
    : dense_(parameters, name + ".dense", config.table.width, config.table.width, config.table.deviation),
      norm_(parameters, name + ".norm", config.table.width),
      output_(parameters, name, config, tied),
      activation_(kernels::inputs_of(activation) > 1 ? kernels::Activation::gelu : activation) {}

Tensor MaskedHead::transform(Context& ctx, const Tensor& hidden, Scratch& scratch) const {
  const Tensor active = scratch.like(hidden), normed = scratch.like(hidden);
  dense_.apply(ctx, hidden, active);
  ops::run(ctx, kernels::ActivationArgs{activation_, active.rows(), active.rows()});
  norm_.forward(ctx, in_type(ctx, scratch, active, stream_type(ctx)), normed, nullptr);
  return normed;
}

void MaskedHead::losses(Context& ctx, const Tensor& hidden, const Asked& asked, const Tensor& losses,
                        const Tensor& right) const {
  Context plain = ctx.without_fp8();
  Scratch scratch(plain);
  output_.losses(plain, transform(plain, hidden, scratch), asked, losses, right);
}

void MaskedHead::scores(Context& ctx, const Tensor& hidden, const Tensor& scores) const {
  Context plain = ctx.without_fp8();
  Scratch scratch(plain);
  output_.scores(plain, transform(plain, hidden, scratch), scores);
}

void MaskedHead::loss_and_gradients(Context& ctx, const Tensor& hidden, const Asked& asked, double scale,
                                    const Tensor& losses, const Tensor& dhidden) const {
  Context plain = ctx.without_fp8();
  Tape tape(*plain.arena);
  tape.open_frame();
  {
    Scratch scratch(plain);
    const Tensor pre = scratch.like(hidden), active = scratch.like(hidden);
    dense_.apply(plain, hidden, pre);
    ops::run(plain, kernels::ActivationArgs{activation_, pre.rows(), active.rows()});
    const Tensor x = in_type(plain, scratch, active, stream_type(plain));
    const Tensor normed = scratch.like(hidden), dnormed = scratch.like(hidden), dx = scratch.like(x);
    norm_.forward(plain, x, normed, &tape);
    output_.loss_and_gradients(plain, normed, asked, scale, losses, dnormed);
    norm_.backward_before(plain, dnormed, dx, kernels::HeldGradient::none, nullptr, tape);
    const Tensor dactive = in_type(plain, scratch, dx, hidden.dtype()), dpre = scratch.like(hidden);
    ops::run(plain, kernels::ActivationBackwardArgs{activation_, dactive.rows(), pre.rows(), dpre.rows()});
    dense_.gradients(plain, hidden, dpre, dhidden);
  }
  tape.close_frame();
  if (plain.watcher != nullptr) plain.watcher->complete_from(dense_.weight());
}

}  // namespace longstride
