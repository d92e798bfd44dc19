// The kernels of distance attention by themselves, with a layer's own form: table, biases, window, dilation, memory;
// spans hide nothing.
#include <fmt/format.h>

#include <cmath>

#include "framework/mixers/distance/mixer.h"
#include "framework/ops/run.h"

namespace longstride {

std::vector<MixerBench> DistanceMixer::bench(Context& ctx, Scratch& scratch, std::int64_t batch,
                                             std::int64_t positions) const {
  const std::int64_t keys = memory_.rows() + positions, size = config_.shape.key_size;
  const auto of_heads = [&](std::int64_t n, std::int64_t elements) {
    return scratch.tensor({batch, n, heads(), elements}, ctx.compute);
  };
  const Tensor q = of_heads(positions, size), k = of_heads(keys, size), v = of_heads(keys, config_.value_size),
               o = of_heads(positions, config_.value_size), dout = scratch.like(o), dq = scratch.like(q),
               dk = scratch.like(k), dv = scratch.like(v), lse = scratch.tensor({batch, heads(), positions}, ctx.exact);
  kernels::DistanceScores scores = visible(q, k);
  scores.scale = 1.0 / std::sqrt(static_cast<double>(size));
  MixerBench out;
  out.inputs = {q, k, v, dout};
  Tensor dtable;
  if (const Tensor shape = term_.table_shape(keys); shape.given()) {
    scores.table = scratch.tensor(shape.shape(), ctx.compute);
    dtable = scratch.tensor(shape.shape(), ctx.exact);
    out.inputs.push_back(scores.table);
    out.zeros.push_back(dtable);
  }
  kernels::DistanceAttentionBackwardArgs backward{scores, v, o, lse, dout, dq, dk, dv};
  backward.dtable = dtable;
  const auto bias = [&](Tensor& value, Tensor& gradient) {
    value = scratch.tensor({heads(), size}, ctx.exact);
    gradient = scratch.like(value);
    out.inputs.push_back(value);
    out.zeros.push_back(gradient);
  };
  if (term_.has_content_bias()) bias(scores.content_bias, backward.dcontent_bias);
  if (term_.has_position_bias()) bias(scores.position_bias, backward.dposition_bias);
  const kernels::DistanceAttentionArgs forward{scores, v, o, lse};
  backward.scores = scores;
  out.name =
      fmt::format("distance ({}, {}, {} of {}, {}/{})", batch, heads(), positions, keys, size, config_.value_size);
  out.forward = [forward](Context& run) { ops::run(run, forward); };
  out.backward = [backward](Context& run) { ops::run(run, backward); };
  const kernels::Cost f = forward.cost(), b = backward.cost();
  out.forward_work = {f.bytes, f.operations};
  out.backward_work = {b.bytes, b.operations};
  return {std::move(out)};
}

}  // namespace longstride
