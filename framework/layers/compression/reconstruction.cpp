#include "framework/layers/compression/reconstruction.h"

#include <cmath>

#include "framework/ops/basic.h"
#include "kernels/gemm/gemm.h"
#include "kernels/softmax/softmax.h"
#include "kernels/squared_error/squared_error.h"

namespace longstride {
namespace {

using kernels::GemmArgs;

// Row b of (batch, rows, heads, size) as a stack of matrices, (heads, rows, size).
Tensor heads_of(const Tensor& t, std::int64_t b) {
  return {t.slice(0, b, b + 1).data(), t.dtype(), {t.size(2), t.size(1), t.size(3)}, {t.stride(2), t.stride(1), 1}};
}

// (heads, rows, columns) contiguous as (heads rows, columns).
Tensor flat(const Tensor& t) { return t.reshape({t.size(0) * t.size(1), t.size(2)}); }

// One row of the batch at a time, so that the scores of a whole batch are never held at once.
class RowOfBatch {
 public:
  RowOfBatch(Context& ctx, const Reconstruction& args, std::int64_t b)
      : ctx_(ctx),
        args_(args),
        b_(b),
        q_(heads_of(args.q, b)),
        scale_(1 / std::sqrt(static_cast<double>(args.q.size(3)))) {}

  void run(const Tensor& losses) const {
    const std::int64_t seq = args_.q.size(1), heads = args_.q.size(2), size = args_.values.size(3);
    const Tensor keys = heads_of(args_.keys, b_), values = heads_of(args_.values, b_);
    Scratch scratch(ctx_);
    const Tensor old = scratch.tensor({1, seq, heads, size}, ctx_.exact), found = scratch.like(old),
                 dfound = scratch.tensor(old.shape(), ctx_.compute);
    attend(heads_of(args_.old_keys, b_), heads_of(args_.old_values, b_), old);
    const Tensor p = attend(keys, values, found, scratch);
    const Shape rows = {1, seq, heads * size};
    ops::run(ctx_, kernels::SquaredErrorArgs{
                       .x = found.reshape(rows),
                       .target = old.reshape(rows),
                       .losses = losses,
                       .dx = dfound.reshape(rows),
                       .scale = args_.scale,
                       .loss_scale = ctx_.loss_scale,
                       .first_key = args_.first_key.given() ? args_.first_key.slice(0, b_, b_ + 1) : Tensor{},
                       .last = args_.last});
    backward(values, p, heads_of(dfound, 0));
  }

 private:
  // Probabilities (heads, seq, keys) in scratch; out (1, seq, heads, size) = A(q, m).
  Tensor attend(const Tensor& keys, const Tensor& values, const Tensor& out, Scratch& scratch) const {
    const Shape shape = {q_.size(0), q_.size(1), keys.size(1)};
    const Tensor p = scratch.tensor(shape, ctx_.compute);
    Scratch inner(ctx_);
    const Tensor scores = inner.tensor(shape, ctx_.exact);
    ops::run(ctx_, GemmArgs{.a = q_, .b = keys.transposed(), .c = scores});
    ops::run(ctx_, kernels::SoftmaxArgs{.x = flat(scores), .y = flat(p), .scale = scale_});
    ops::run(ctx_, GemmArgs{.a = p, .b = values, .c = heads_of(out, 0)});
    return p;
  }
  void attend(const Tensor& keys, const Tensor& values, const Tensor& out) const {
    Scratch scratch(ctx_);
    attend(keys, values, out, scratch);
  }
  void backward(const Tensor& values, const Tensor& p, const Tensor& dout) const {
    Scratch scratch(ctx_);
    const Tensor dp = scratch.tensor(p.shape(), ctx_.exact), ds = scratch.like(p);
    ops::run(ctx_, GemmArgs{.a = p.transposed(), .b = dout, .c = heads_of(args_.dvalues, b_)});
    ops::run(ctx_, GemmArgs{.a = dout, .b = values.transposed(), .c = dp});
    ops::run(ctx_, kernels::SoftmaxBackwardArgs{.y = flat(p), .dy = flat(dp), .dx = flat(ds), .scale = scale_});
    ops::run(ctx_, GemmArgs{.a = ds.transposed(), .b = q_, .c = heads_of(args_.dkeys, b_)});
  }

  Context& ctx_;
  const Reconstruction& args_;
  const std::int64_t b_;
  const Tensor q_;
  const double scale_;
};

}  // namespace

void reconstruct_attention(Context& ctx, const Reconstruction& args) {
  const std::int64_t batch = args.q.size(0), seq = args.q.size(1);
  Scratch scratch(ctx);
  const Tensor losses = scratch.tensor({batch, seq}, ctx.exact);
  for (std::int64_t b = 0; b < batch; ++b) RowOfBatch(ctx, args, b).run(losses.slice(0, b, b + 1));
  ops::sum(ctx, losses, args.total);
}

}  // namespace longstride
