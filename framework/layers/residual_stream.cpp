#include "framework/layers/residual_stream.h"

#include <algorithm>

#include "framework/core/errors.h"
#include "framework/ops/run.h"
#include "kernels/elementwise/elementwise.h"

namespace longstride {

const LayerNorm* ResidualStream::norm(int k) const {
  if (post_norm()) return k == 0 ? nullptr : step(k - 1).norm.get();
  return k < size() ? step(k).norm.get() : last_norm_.get();
}

void ResidualStream::normalise(Context& ctx, int k, const Tensor& h, const Tensor& x, Tape* tape) const {
  if (norm(k) != nullptr) return norm(k)->forward(ctx, h, x, tape);
  ops::run(ctx, kernels::CopyArgs{.from = h, .to = x});
}

void ResidualStream::add_and_normalise(Context& ctx, int k, const Next& next, const Tensor& normed, Tape* tape) const {
  Tensor residual = post_norm() ? next.x : next.h;
  if (residual.dtype() != next.sum.dtype()) {
    ops::run(ctx, kernels::CopyArgs{.from = residual, .to = next.sum});
    residual = next.sum;
  }
  norm(k + 1)->forward_after(ctx, {next.out, residual, next.sum, step(k).after}, normed, tape);
}

template <class Run>
void ResidualStream::forward_in_place(Context& ctx, const Tensor& h, const Tensor& normed, Run&& run) const {
  Scratch scratch(ctx);
  const Tensor out = scratch.like(normed);
  normalise(ctx, 0, h, normed, nullptr);
  for (int k = 0; k < size(); ++k) {
    run(k, normed, out);
    add_and_normalise(ctx, k, {out, h, normed, h}, normed, nullptr);
  }
}

void ResidualStream::forward(Context& ctx, const Tensor& h, const Tensor& normed, Tape* tape) const {
  LONGSTRIDE_CHECK(!steps_.empty(), "a residual stream without branches");
  if (tape == nullptr) return observe(ctx, h, normed, [](int, const Tensor&) {});
  if (recomputed_.branches > 0) return forward_keeping_the_stream(ctx, h, normed, *tape);
  forward_keeping_all(ctx, 0, size(), h, normed, *tape);
}

void ResidualStream::observe(Context& ctx, const Tensor& h, const Tensor& normed, const Observer& observer) const {
  forward_in_place(ctx, h, normed, [&](int k, const Tensor& in, const Tensor& out) {
    observer(k, in);
    step(k).branch->forward(ctx, in, out, nullptr);
  });
}

ResidualStream::Caches ResidualStream::make_caches(Context& ctx, Scratch& memory, std::int64_t batch,
                                                   std::int64_t positions) const {
  Caches caches;
  for (const ResidualStep& s : steps_) caches.push_back(s.branch->make_cache(ctx, memory, batch, positions));
  return caches;
}

void ResidualStream::decode(Context& ctx, const Tensor& h, const Tensor& normed, const Caches& caches,
                            std::int64_t position) const {
  forward_in_place(ctx, h, normed, [&](int k, const Tensor& in, const Tensor& out) {
    step(k).branch->decode(ctx, in, out, caches[static_cast<std::size_t>(k)].get(), position);
  });
}

void ResidualStream::forward_keeping_the_stream(Context& ctx, const Tensor& h, const Tensor& normed, Tape& tape) const {
  Scratch scratch(ctx);
  const Tensor out = scratch.like(normed);
  const Tensor between = recomputed_.branches > 1 ? scratch.like(h) : Tensor{};  // the residual stream inside a group
  tape.open_frame();
  tape.push(h);
  normalise(ctx, 0, h, normed, nullptr);
  Tensor current = h;
  for (int k = 0; k < size(); ++k) {
    if (recomputed_.keep_results)
      step(k).branch->forward_keeping(ctx, normed, out, tape);
    else
      step(k).branch->forward(ctx, normed, out, nullptr);
    const bool last = k + 1 == size(), kept = last || (k + 1) % recomputed_.branches == 0;
    if (kept) tape.open_frame();
    const Tensor next = kept ? tape.tensor(h.shape(), h.dtype()) : between;
    add_and_normalise(ctx, k, {out, current, normed, next}, normed, last ? &tape : nullptr);
    if (kept && !last) tape.push(next);
    current = next;
  }
}

void ResidualStream::forward_keeping_all(Context& ctx, int begin, int end, Tensor h, const Tensor& normed, Tape& tape,
                                         const std::vector<KeptResults>& kept) const {
  Scratch scratch(ctx);
  Tensor out, input;
  const auto run = [&](int k, const Tensor& to) {
    if (kept.empty()) return step(k).branch->forward(ctx, input, to, &tape);
    step(k).branch->forward_again(ctx, input, to, kept[static_cast<std::size_t>(k - begin)], tape);
  };
  tape.open_frame();
  input = tape.tensor(h.shape(), ctx.compute);
  normalise(ctx, begin, h, input, &tape);
  for (int k = begin; k < end; ++k) {
    const bool last = k + 1 == end;
    if (last && !normed.given()) return run(k, Tensor{});
    if (!out.given()) out = scratch.tensor(h.shape(), ctx.compute);
    run(k, out);
    tape.open_frame();
    const Tensor next = tape.tensor(h.shape(), h.dtype());
    const Tensor next_input = last ? normed : tape.tensor(h.shape(), ctx.compute);
    add_and_normalise(ctx, k, {out, h, input, next}, next_input, &tape);
    h = next;
    input = next_input;
  }
}

std::vector<KeptResults> ResidualStream::pop_kept(int begin, int end, Tape& tape) const {
  if (!recomputed_.keep_results) return {};
  std::vector<KeptResults> kept(static_cast<std::size_t>(end - begin));
  for (int k = end - 1; k >= begin; --k) {
    KeptResults& of = kept[static_cast<std::size_t>(k - begin)];
    of.resize(static_cast<std::size_t>(step(k).branch->kept_results()));
    for (std::size_t i = of.size(); i-- > 0;) of[i] = tape.pop();
  }
  return kept;
}

void ResidualStream::backward(Context& ctx, const Tensor& d, const Tensor& dh, Tape& tape) const {
  backward_norm(ctx, size(), d, dh, tape);
  tape.close_frame();
  if (recomputed_.branches == 0) return backward_kept(ctx, 0, size(), d, dh, tape);
  for (int end = size(); end > 0;) {
    const int begin = (end - 1) / recomputed_.branches * recomputed_.branches;
    const std::vector<KeptResults> kept = pop_kept(begin, end, tape);
    forward_keeping_all(ctx, begin, end, tape.pop(), Tensor{}, tape, kept);
    backward_kept(ctx, begin, end, d, dh, tape);
    tape.close_frame();  // that of the kept residual stream
    end = begin;
  }
}

bool ResidualStream::passes_unchanged(const Context& ctx, int k) const {
  return ctx.compute == ctx.residual_dtype() && step(k).after.p_in(ctx) == 0;
}

void ResidualStream::backward_norm(Context& ctx, int k, const Tensor& d, const Tensor& dh, Tape& tape) const {
  if (norm(k) == nullptr) return ops::run(ctx, kernels::AddArgs{.from = d, .to = dh});
  using kernels::HeldGradient;
  const HeldGradient held = k == size() ? HeldGradient::none : post_norm() ? HeldGradient::of_y : HeldGradient::of_x;
  if (k == 0) return norm(k)->backward_before(ctx, d, dh, held, nullptr, tape);
  const BranchGradient below{passes_unchanged(ctx, k - 1) ? Tensor{} : d, step(k - 1).branch->output_bias_gradient(),
                             step(k - 1).after};
  norm(k)->backward_before(ctx, d, dh, held, &below, tape);
}

void ResidualStream::backward_kept(Context& ctx, int begin, int end, const Tensor& d, const Tensor& dh,
                                   Tape& tape) const {
  for (int k = end - 1; k >= begin; --k) {
    step(k).branch->backward(ctx, passes_unchanged(ctx, k) ? dh : d, d, tape);
    if (ctx.watcher != nullptr) ctx.watcher->complete_from(step(k).branch->gradients_final_from());
    backward_norm(ctx, k, d, dh, tape);
    tape.close_frame();
  }
}

}  // namespace longstride
