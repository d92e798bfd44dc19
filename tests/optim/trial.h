// A run of the optimizer on bare weights.
#pragma once
#include <algorithm>
#include <vector>

#include "framework/optim/optimizer.h"
#include "tests/support/test_tensors.h"

namespace longstride::testing {

// One step on a single rank.
inline void take_step(Optimizer& optimizer, Context& ctx, const Tensor& weights, const Tensor& gradient) {
  optimizer.measure(ctx, gradient, {{0, gradient.count(), false}});
  optimizer.update(ctx, weights, gradient);
}

struct Trial {
  TestContext ctx;
  OwnedTensor weights, m, v, ema,
      scalars;  // m, v, ema and factors have arbitrary content: start() must initialise them
  OwnedTensor factors, tensor_squares;
  std::int64_t step = 0;
  Optimizer optimizer;

  // The first `decayed` of `count` weights decay.
  Trial(const Optimizer::Config& c, std::int64_t count, std::int64_t decayed, Dtype dtype,
        const OptimizerParts& parts = {})
      : weights(normals({count}, dtype, 1)),
        m(normals({count}, dtype, 2)),
        v(normals({count}, dtype, 3)),
        ema(normals({count}, dtype, 4)),
        scalars({static_cast<std::int64_t>(Optimizer::scalars_bytes)}, Dtype::u8),
        factors(normals({factors_of(parts)}, dtype, 5)),
        tensor_squares(normals({std::max<std::int64_t>(1, std::ssize(parts.tensors))}, Dtype::f64, 6)),
        optimizer(c, state(c), {{0, decayed, true}, {decayed, count - decayed}}, parts) {
    ctx.step = &step;
    optimizer.start(ctx, weights);
  }
  // Muon updates `matrices`.
  Trial(const Optimizer::Config& c, std::int64_t count, std::int64_t decayed, Dtype dtype,
        const std::vector<HiddenMatrix>& matrices)
      : Trial(c, count, decayed, dtype, OptimizerParts{.orthogonalised = matrices, .tensors = {}, .factored = {}}) {}
  void advance(const OwnedTensor& gradient) {
    take_step(optimizer, ctx, weights, gradient);
    ++step;
  }

 private:
  static std::int64_t factors_of(const OptimizerParts& parts) {
    std::int64_t end = 1;
    for (const FactoredMatrix& x : parts.factored) end = std::max({end, x.rows_at + x.rows, x.columns_at + x.columns});
    return end;
  }
  Optimizer::State state(const Optimizer::Config& c) const {
    Optimizer::State s;
    if (c.first_moments()) s.m = m;
    if (c.second_moments()) s.v = v;
    if (c.ema > 0) s.ema = ema;
    s.scalars = scalars;
    if (c.kind == OptimizerKind::adafactor) s.factors = factors;
    if (c.tensor_clip > 0) s.tensor_squares = tensor_squares;
    return s;
  }
};

}  // namespace longstride::testing
