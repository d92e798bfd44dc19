// Adam with decoupled weight decay, a schedule of the learning rate, clipping by global norm, and an optional running
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
    std::int64_t steps = 0;   // of the whole run; the learning rate is 0 afterwards
    kernels::ScheduleKind schedule = kernels::ScheduleKind::cosine;
    double lr_floor = 0;           // approached at `steps`
    std::int64_t decay_steps = 0;  // of warmup_stable_decay, at least 1
    double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
    double weight_decay = 0.01;
    double clip = 0;                  // largest global norm of the gradient; 0: no clipping
    double ema = 0;                   // decay of the running average of weights, in [0, 1); 0: none
    bool dynamic_loss_scale = false;  // fp16: the gradients passed to update() are scaled by scalars()->loss_scale
  };

  // Flat tensors of the weights' type, with as many elements as the optimizer updates; scalars is u8 of scalars_bytes.
  struct State {
    Tensor m, v;  // for a matrix that Muon updates, m is its momentum and v stays zero
    Tensor ema;   // absent when Config::ema is 0
    Tensor scalars;
  };
  static constexpr std::size_t scalars_bytes = sizeof(kernels::OptimizerScalars);

  // Updates these ranges of the weights: all (ParameterSet::everything) or a rank's pieces. `state` holds their state
  // one after another. A matrix that Muon updates must be within one range; the padding after it is not touched.
  // UserError on settings that are out of range.
  Optimizer(const Config& config, const State& state, const std::vector<FlatRange>& ranges,
            const std::vector<HiddenMatrix>& orthogonalised = {});

  // A new run: the moments are zero, and the running average starts as the weights.
  void start(Context& ctx, const Tensor& weights);
  // A resumed run: moments and average have been loaded; the loss scale and its count come from the checkpoint.
  void resume(Context& ctx, float loss_scale, std::int64_t good_steps);

  // One update of the weights at step *ctx.step (0-based), from the gradient averaged over the global batch, has two
  // halves, each with scratch from the arena. The first measures this rank's pieces of the gradient; ranks add up
  // sum_of_squares() between the two. The second computes the global norm, the clip coefficient, Adam and the running
  // average. `low_precision`, if given, receives the rounded weights. A gradient that is not finite changes only the
  // scalars.
  void measure(Context& ctx, const Tensor& gradient, const std::vector<FlatRange>& ranges);
  void update(Context& ctx, const Tensor& weights, const Tensor& gradient, const Tensor& low_precision = {});
  Tensor sum_of_squares() const;  // (1) f64: the result of measure()

  // The last step's learning rate, gradient norm before clipping, clip coefficient and whether it was skipped, and the
  // next step's loss scale. In device memory.
  const kernels::OptimizerScalars* scalars() const { return state_.scalars.as<const kernels::OptimizerScalars>(); }

  const Config& config() const { return config_; }

 private:
  struct Updated {
    FlatRange range;
    std::int64_t at = 0;  // offset of its state
    Tensor state_of(const Tensor& state) const { return state.slice(0, at, at + range.count); }
  };
  // The tensors of one step.
  struct FlatTensors {
    const Tensor &weights, &gradient, &low_precision;
  };
  void divide(const Updated& all, const std::vector<HiddenMatrix>& orthogonalised);
  void adam(Context& ctx, const Updated& part, const FlatTensors& flat) const;

  Config config_;
  State state_;
  std::vector<Updated> updated_;      // all ranges
  std::vector<Updated> by_adam_;      // those that Adam updates
  std::vector<MatrixGroup> by_muon_;  // those that Muon updates
};

}  // namespace longstride
