// A run of the optimizer on bare weights.
#pragma once
#include <vector>

#include "framework/optim/optimizer.h"
#include "tests/gradients/test_tensors.h"

namespace longstride::testing {

// One step on a single rank.
inline void take_step(Optimizer& optimizer, Context& ctx, const Tensor& weights, const Tensor& gradient) {
  optimizer.measure(ctx, gradient, {{0, gradient.count(), false}});
  optimizer.update(ctx, weights, gradient);
}

struct Trial {
  TestContext ctx;
  OwnedTensor weights, m, v, ema, scalars;  // m, v and ema have arbitrary content: start() must initialise them
  std::int64_t step = 0;
  Optimizer optimizer;

  // The first `decayed` of `count` weights decay, and Muon updates `matrices`.
  Trial(const Optimizer::Config& c, std::int64_t count, std::int64_t decayed, Dtype dtype,
        const std::vector<HiddenMatrix>& matrices = {})
      : weights(normals({count}, dtype, 1)),
        m(normals({count}, dtype, 2)),
        v(normals({count}, dtype, 3)),
        ema(normals({count}, dtype, 4)),
        scalars({static_cast<std::int64_t>(Optimizer::scalars_bytes)}, Dtype::u8),
        optimizer(c, {m, v, ema, scalars}, {{0, decayed, true}, {decayed, count - decayed}}, matrices) {
    ctx.step = &step;
    optimizer.start(ctx, weights);
  }
  void advance(const OwnedTensor& gradient) {
    take_step(optimizer, ctx, weights, gradient);
    ++step;
  }
};

}  // namespace longstride::testing
