#include "framework/ops/draw.h"

#include "framework/ops/dispatch.h"

namespace longstride::ops {

void draw(Context& ctx, const Tensor& logits, const Drawing& drawing, std::int64_t position) {
  check_contiguous(logits, "logits");
  check_contiguous(drawing.bytes, "bytes");
  LONGSTRIDE_CHECK(logits.rank() == 2 && logits.size(1) <= 256 && computes(logits.dtype()), "logits are {} of {}",
                   logits.shape().text(), kernels::name_of(logits.dtype()));
  LONGSTRIDE_CHECK(drawing.bytes.rank() == 2 && drawing.bytes.size(0) == logits.size(0) &&
                       drawing.bytes.dtype() == Dtype::u8 && position >= 0 && position < drawing.bytes.size(1),
                   "bytes are {} at position {}", drawing.bytes.shape().text(), position);
  check_vector(drawing.previous, logits.size(0), Dtype::u8, "previous");
  if (drawing.log_probabilities.given())
    check_vector(drawing.log_probabilities, drawing.bytes.count(), Dtype::f32, "log_probabilities");
  if (ctx.planning()) return;
  kernels::DrawArgs args;
  args.logits = logits.view();
  args.bytes = drawing.bytes.view();
  args.log_probabilities = drawing.log_probabilities.view();
  args.previous = drawing.previous.view();
  args.prompted = drawing.prompted;
  args.sampling = drawing.sampling;
  args.first_sequence = drawing.first_sequence;
  args.position = position;
  args.position_at = ctx.position;
  launch(ctx, kernels::cpu::draw, kernels::cuda::draw, args);
}

}  // namespace longstride::ops
