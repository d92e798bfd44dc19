// Adam with decoupled weight decay, linear warmup and cosine decay, clipping by global norm, and an optional running
// average of the weights (docs/develop/numerics.md). Matrices named by the caller are updated by Muon (muon.h) instead.
// It owns no memory: the flat buffers are passed in and the scalars live next to them, so a step neither allocates nor
// waits for the device.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "framework/core/context.h"
#include "framework/core/parameters.h"
#include "framework/optim/muon.h"
#include "kernels/adam/adam.h"

namespace longstride {

class Optimizer {
 public:
  struct Config {
    double lr = 0;            // peak
    std::int64_t warmup = 0;  // steps; 0: none
    std::int64_t steps = 0;   // of the whole run; the learning rate is 0 from there on
    double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
    double weight_decay = 0.01;
    double clip = 0;                  // largest global norm of the gradient; 0: no clipping
    double ema = 0;                   // decay of the running average of weights, in [0, 1); 0: none
    bool dynamic_loss_scale = false;  // fp16: the gradients that update() is given are scaled by scalars()->loss_scale
  };

  // Flat tensors of as many elements as the optimizer updates, and of the weights' type; scalars is u8 of
  // scalars_bytes.
  struct State {
    Tensor m, v;  // of a matrix that Muon updates, m is its momentum, and v stays as it is: zero
    Tensor ema;   // absent when Config::ema is 0
    Tensor scalars;
  };
  static constexpr std::size_t scalars_bytes = sizeof(kernels::OptimizerScalars);

  // Updates these ranges of the weights, whose state is one after another in `state`: all (ParameterSet::everything),
  // or a rank's pieces. A matrix that Muon updates is within one range; the padding after it is left alone. UserError
  // on settings that are out of range.
  Optimizer(const Config& config, const State& state, const std::vector<FlatRange>& ranges,
            const std::vector<HiddenMatrix>& orthogonalised = {});

  // A fresh run: no moments, and the running average starts as the weights.
  void start(Context& ctx, const Tensor& weights);
  // A resumed run: moments and average are there already; the loss scale and its count are a checkpoint's.
  void resume(Context& ctx, float loss_scale, std::int64_t good_steps);

  // One update of the weights at step *ctx.step (0-based), from the gradient averaged over the global batch, has two
  // halves, each with scratch from the arena. Ranks measure pieces of the gradient and add up sum_of_squares() between
  // the two. The second computes the global norm, the clip coefficient, Adam and the running average. `low`, when
  // given, becomes the weights rounded. A gradient that is not finite changes only the scalars.
  void measure(Context& ctx, const Tensor& gradient, const std::vector<FlatRange>& ranges);
  void update(Context& ctx, const Tensor& weights, const Tensor& gradient, const Tensor& low = {});
  Tensor sum_of_squares() const;  // (1) f64: what was measured

  // Of the last step: learning rate, gradient norm before clipping, clip coefficient, whether it was skipped; and the
  // loss scale of the next. In device memory.
  const kernels::OptimizerScalars* scalars() const { return state_.scalars.as<const kernels::OptimizerScalars>(); }

  const Config& config() const { return config_; }

 private:
  struct Updated {
    FlatRange range;
    std::int64_t at = 0;  // where its state begins
    Tensor state_of(const Tensor& state) const { return state.slice(0, at, at + range.count); }
  };
  // What one step works on.
  struct Flat {
    const Tensor &weights, &gradient, &low;
  };
  void divide(const Updated& all, const std::vector<HiddenMatrix>& orthogonalised);
  void adam(Context& ctx, const Updated& part, const Flat& flat) const;

  Config config_;
  State state_;
  std::vector<Updated> updated_;      // all ranges
  std::vector<Updated> by_adam_;      // of which by Adam
  std::vector<MatrixGroup> by_muon_;  // and by Muon
};

}  // namespace longstride
