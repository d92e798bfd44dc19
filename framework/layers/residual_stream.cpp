#include "framework/layers/residual_stream.h"

#include <algorithm>
#include <utility>

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

void ResidualStream::add_and_normalise(Context& ctx, int k, const At& at, const Tensor& out, const Next& next) const {
  Tensor residual = post_norm() ? at.x : at.h;
  if (residual.dtype() != next.h.dtype()) {
    ops::run(ctx, kernels::CopyArgs{.from = residual, .to = next.h});
    residual = next.h;
  }
  norm(k + 1)->forward_after(ctx, {out, residual, next.h, step(k).after}, next.x, next.tape);
}

bool ResidualStream::added_by_branch(const Context& ctx, int k) const {
  return passes_unchanged(ctx, k) && step(k).branch->adds_residual();
}

bool ResidualStream::reads_one_and_writes_another(const Context& ctx) const {
  for (int k = 0; k < size(); ++k)
    if (added_by_branch(ctx, k) && !post_norm()) return true;
  return false;
}

template <class Run, class MakeNext>
ResidualStream::Next ResidualStream::advance(Context& ctx, int k, const At& at, Tensor& out, Scratch& scratch,
                                             Run&& run, MakeNext&& make_next) const {
  Next next;
  if (added_by_branch(ctx, k)) {
    run(BranchOutput([&] {
      next = make_next();
      return BranchOutput::Place{next.h, post_norm() ? at.x : at.h};
    }));
    norm(k + 1)->forward(ctx, next.h, next.x, next.tape);
    return next;
  }
  if (!out.given()) out = scratch.tensor(at.h.shape(), ctx.compute);
  run(BranchOutput(out));
  next = make_next();
  add_and_normalise(ctx, k, at, out, next);
  return next;
}

void ResidualStream::forward(Context& ctx, const Tensor& h, const Tensor& normed, Tape* tape) const {
  LONGSTRIDE_CHECK(!steps_.empty(), "a residual stream without branches");
  if (tape == nullptr) return observe(ctx, h, normed, [](int, const Tensor&) {});
  if (recomputed_.branches > 0) return forward_keeping_the_stream(ctx, h, normed, *tape);
  forward_keeping_all(ctx, 0, size(), h, normed, *tape);
}

void ResidualStream::observe(Context& ctx, const Tensor& h, const Tensor& normed, const Observer& observer) const {
  Scratch scratch(ctx);
  Tensor out, spare = reads_one_and_writes_another(ctx) ? scratch.like(h) : Tensor{};
  normalise(ctx, 0, h, normed, nullptr);
  At at = {h, normed};
  for (int k = 0; k < size(); ++k) {
    observer(k, normed);
    const auto run = [&](const BranchOutput& to) { step(k).branch->forward(ctx, normed, to, nullptr); };
    const auto make_next = [&] {
      const Tensor next = spare.given() ? std::exchange(spare, at.h) : at.h;
      return Next{{next, normed}, nullptr};
    };
    at = advance(ctx, k, at, out, scratch, run, make_next);
  }
}

ResidualStream::Caches ResidualStream::make_caches(Context& ctx, Scratch& memory, std::int64_t batch,
                                                   std::int64_t positions) const {
  Caches caches;
  for (const ResidualStep& s : steps_) caches.push_back(s.branch->make_cache(ctx, memory, batch, positions));
  return caches;
}

void ResidualStream::decode(Context& ctx, const Tensor& h, const Tensor& normed, const Caches& caches,
                            std::int64_t position) const {
  Scratch scratch(ctx);
  const Tensor out = scratch.like(normed);
  normalise(ctx, 0, h, normed, nullptr);
  const At at = {h, normed};
  for (int k = 0; k < size(); ++k) {
    step(k).branch->decode(ctx, normed, out, caches[static_cast<std::size_t>(k)].get(), position);
    add_and_normalise(ctx, k, at, out, {at, nullptr});
  }
}

void ResidualStream::forward_keeping_the_stream(Context& ctx, const Tensor& h, const Tensor& normed, Tape& tape) const {
  Scratch scratch(ctx);
  Tensor out;
  // The residual stream inside a group, of more than one branch or two.
  Tensor between = recomputed_.branches > 1 ? scratch.like(h) : Tensor{};
  Tensor spare = recomputed_.branches > 2 && reads_one_and_writes_another(ctx) ? scratch.like(h) : Tensor{};
  tape.open_frame();
  tape.push(h);
  normalise(ctx, 0, h, normed, nullptr);
  Tensor current = h;
  for (int k = 0; k < size(); ++k) {
    const bool last = k + 1 == size(), kept = last || (k + 1) % recomputed_.branches == 0;
    const auto run = [&](const BranchOutput& to) {
      if (recomputed_.keep_results) return step(k).branch->forward_keeping(ctx, normed, to, tape);
      step(k).branch->forward(ctx, normed, to, nullptr);
    };
    const auto make_next = [&] {
      if (kept) tape.open_frame();
      if (!kept && spare.given()) std::swap(between, spare);
      return Next{{kept ? tape.tensor(h.shape(), h.dtype()) : between, normed}, last ? &tape : nullptr};
    };
    current = advance(ctx, k, {current, normed}, out, scratch, run, make_next).h;
    if (kept && !last) tape.push(current);
  }
}

void ResidualStream::forward_keeping_all(Context& ctx, int begin, int end, const Tensor& h, const Tensor& normed,
                                         Tape& tape, const std::vector<KeptResults>& kept) const {
  Scratch scratch(ctx);
  Tensor out;
  tape.open_frame();
  At at = {h, tape.tensor(h.shape(), ctx.compute)};
  normalise(ctx, begin, h, at.x, &tape);
  for (int k = begin; k < end; ++k) {
    const bool last = k + 1 == end;
    const auto run = [&](const BranchOutput& to) {
      if (kept.empty()) return step(k).branch->forward(ctx, at.x, to, &tape);
      step(k).branch->forward_again(ctx, at.x, to, kept[static_cast<std::size_t>(k - begin)], tape);
    };
    if (last && !normed.given()) return run(BranchOutput{});
    const auto make_next = [&] {
      tape.open_frame();
      const Tensor next = tape.tensor(h.shape(), h.dtype());
      return Next{{next, last ? normed : tape.tensor(h.shape(), ctx.compute)}, &tape};
    };
    at = advance(ctx, k, at, out, scratch, run, make_next);
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
    tape.close_frame();  // the kept residual stream's frame
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
