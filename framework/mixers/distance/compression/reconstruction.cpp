#include "framework/mixers/distance/compression/reconstruction.h"

#include <cmath>

#include "framework/ops/basic.h"
#include "kernels/gemm/gemm.h"
#include "kernels/softmax/softmax.h"
#include "kernels/squared_error/squared_error.h"

namespace longstride {
namespace {

using kernels::GemmArgs;

// Head h of (batch, rows, heads, size) as a stack of matrices, (batch, rows, size).
Tensor of_head(const Tensor& t, std::int64_t h) {
  const Tensor slice = t.slice(2, h, h + 1);
  return {slice.data(), t.dtype(), {t.size(0), t.size(1), t.size(3)}, {t.stride(0), t.stride(1), 1}};
}

// (batch, rows, columns) contiguous as (batch rows, columns).
Tensor flat(const Tensor& t) { return t.reshape({t.size(0) * t.size(1), t.size(2)}); }

// One head of the whole batch at a time: few products of many matrices, and the scores of all heads are never held at
// once.
class HeadOfBatch {
 public:
  HeadOfBatch(Context& ctx, const Reconstruction& args, std::int64_t h)
      : ctx_(ctx),
        args_(args),
        h_(h),
        q_(of_head(args.q, h)),
        scale_(1 / std::sqrt(static_cast<double>(args.q.size(3)))) {}

  void run(const Tensor& losses) const {
    const Tensor keys = of_head(args_.keys, h_), values = of_head(args_.values, h_);
    Scratch scratch(ctx_);
    const Tensor old = scratch.tensor({q_.size(0), q_.size(1), values.size(2)}, ctx_.exact), found = scratch.like(old),
                 dfound = scratch.tensor(old.shape(), ctx_.compute);
    attend(of_head(args_.old_keys, h_), of_head(args_.old_values, h_), old);
    const Tensor p = attend(keys, values, found, scratch);
    ops::run(ctx_, kernels::SquaredErrorArgs{.x = found,
                                             .target = old,
                                             .losses = losses,
                                             .dx = dfound,
                                             .scale = args_.scale,
                                             .loss_scale = ctx_.loss_scale,
                                             .first_key = args_.first_key,
                                             .last = args_.last});
    ops::sum(ctx_, losses, args_.total);
    backward(values, p, dfound);
  }

 private:
  // Probabilities (batch, seq, keys) in scratch; out (batch, seq, size) = A(q, m).
  Tensor attend(const Tensor& keys, const Tensor& values, const Tensor& out, Scratch& scratch) const {
    const Shape shape = {q_.size(0), q_.size(1), keys.size(1)};
    const Tensor p = scratch.tensor(shape, ctx_.compute);
    Scratch inner(ctx_);
    const Tensor scores = inner.tensor(shape, ctx_.exact);
    ops::run(ctx_, GemmArgs{.a = q_, .b = keys.transposed(), .c = scores});
    ops::run(ctx_, kernels::SoftmaxArgs{.x = flat(scores), .y = flat(p), .scale = scale_});
    ops::run(ctx_, GemmArgs{.a = p, .b = values, .c = out});
    return p;
  }
  void attend(const Tensor& keys, const Tensor& values, const Tensor& out) const {
    Scratch scratch(ctx_);
    attend(keys, values, out, scratch);
  }
  void backward(const Tensor& values, const Tensor& p, const Tensor& dout) const {
    Scratch scratch(ctx_);
    const Tensor dp = scratch.tensor(p.shape(), ctx_.exact), ds = scratch.like(p);
    ops::run(ctx_, GemmArgs{.a = p.transposed(), .b = dout, .c = of_head(args_.dvalues, h_)});
    ops::run(ctx_, GemmArgs{.a = dout, .b = values.transposed(), .c = dp});
    ops::run(ctx_, kernels::SoftmaxBackwardArgs{.y = flat(p), .dy = flat(dp), .dx = flat(ds), .scale = scale_});
    ops::run(ctx_, GemmArgs{.a = ds.transposed(), .b = q_, .c = of_head(args_.dkeys, h_)});
  }

  Context& ctx_;
  const Reconstruction& args_;
  const std::int64_t h_;
  const Tensor q_;
  const double scale_;
};

}  // namespace

void reconstruct_attention(Context& ctx, const Reconstruction& args) {
  Scratch scratch(ctx);
  const Tensor losses = scratch.tensor({args.q.size(0), args.q.size(1)}, ctx.exact);
  for (std::int64_t h = 0; h < args.q.size(2); ++h) HeadOfBatch(ctx, args, h).run(losses);
}

}  // namespace longstride
