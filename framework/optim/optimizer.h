// Adam with decoupled weight decay, a schedule of the learning rate, clipping by global norm, and an optional running
// average of the weights (docs/develop/numerics.md). Matrices named by the caller are updated by Muon (muon.h) instead;
// or Adagrad or Adafactor (adafactor.h) updates everything. It owns no memory: the flat buffers are passed in and the
// scalars live next to them, so a step neither allocates nor waits for the device.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "framework/core/context.h"
#include "framework/core/parameters.h"
#include "framework/optim/adafactor.h"
#include "framework/optim/muon.h"
#include "framework/optim/optimizer_kind.h"
#include "kernels/adam/adam.h"

namespace longstride {

// Weights that an update leaves between two numbers.
struct LimitedRange {
  FlatRange range;
  Limits limits;
};

// The parts that an optimizer does not treat element by element, each of the first three lists for one kind.
struct OptimizerParts {
  std::vector<HiddenMatrix> orthogonalised;  // muon
  std::vector<FlatRange> tensors;            // adagrad: those whose norms are limited separately
  std::vector<FactoredMatrix> factored;      // adafactor
  std::vector<LimitedRange> limited = {};
};

class Optimizer {
 public:
  struct Config {
    double lr = 0;            // peak
    std::int64_t warmup = 0;  // steps; 0: none
    std::int64_t steps = 0;   // in the whole run; the learning rate is 0 afterwards
    kernels::ScheduleKind schedule = kernels::ScheduleKind::cosine;
    double lr_floor = 0;           // approached at `steps`
    std::int64_t decay_steps = 0;  // warmup_stable_decay: at least 1
    std::int64_t decay_from = 0;   // reciprocal_sqrt: at least 1
    double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
    double weight_decay = 0.01;
    double clip = 0;                  // largest global norm of the gradient; 0: no clipping
    double ema = 0;                   // largest decay of the running average of weights, in [0, 1); 0: none
    bool dynamic_loss_scale = false;  // fp16: the gradients passed to update() are scaled by scalars()->loss_scale
    OptimizerKind kind = OptimizerKind::adam;
    double tensor_clip = 0;  // adagrad: above this norm of its gradient, a tensor's learning rate falls; 0: never
    double decay_rate = 0.8, clip_threshold = 1;  // adafactor
    bool scale_parameter = true;                  // adafactor

    // Which moments as long as the weights it keeps.
    bool first_moments() const { return kind == OptimizerKind::adafactor ? beta1 > 0 : kind != OptimizerKind::adagrad; }
    bool second_moments() const { return kind != OptimizerKind::adafactor; }
  };

  // Flat tensors of the weights' type, with as many elements as the optimizer updates; scalars is u8 of scalars_bytes.
  struct State {
    Tensor m, v;  // as Config tells; for a matrix that Muon updates, m is its momentum and v stays zero. Adagrad's v is
                  // its sum of squares
    Tensor ema;   // absent when Config::ema is 0
    Tensor scalars;
    Tensor factors = {};         // adafactor: as factor_layout() tells
    Tensor tensor_squares = {};  // (tensors) f64; absent when Config::tensor_clip is 0
  };
  static constexpr std::size_t scalars_bytes = sizeof(kernels::OptimizerScalars);

  // Updates these ranges of the weights: all (ParameterSet::everything) or a rank's pieces. `state` holds their state
  // one after another. A matrix that Muon updates must be within one range; the padding after it is not touched.
  // Adafactor updates everything, and its factors are those of all weights. UserError on settings that are out of
  // range.
  Optimizer(const Config& config, const State& state, const std::vector<FlatRange>& ranges,
            const OptimizerParts& parts = {});

  // A new run: the moments are zero, and the running average starts as the weights.
  void start(Context& ctx, const Tensor& weights);
  // A resumed run: moments and average have been loaded; the loss scale and its count come from the checkpoint.
  void resume(Context& ctx, float loss_scale, std::int64_t good_steps, std::int64_t skipped);

  // One update of the weights at step *ctx.step (0-based), from the gradient averaged over the global batch, has two
  // halves, each with scratch from the arena. The first measures this rank's pieces of the gradient; ranks add up
  // sum_of_squares() and tensor_squares() between the two. The second computes the global norm, the clip coefficient,
  // the update, the weights' limits and the running average. `low_precision`, if given, receives the rounded weights. A
  // gradient that is not finite changes only the scalars.
  void measure(Context& ctx, const Tensor& gradient, const std::vector<FlatRange>& ranges);
  void update(Context& ctx, const Tensor& weights, const Tensor& gradient, const Tensor& low_precision = {});
  Tensor sum_of_squares() const;                                          // (1) f64: the result of measure()
  const Tensor& tensor_squares() const { return state_.tensor_squares; }  // likewise, by tensor; may be absent

  // The last step's learning rate, gradient norm before clipping, clip coefficient and whether it was skipped, and the
  // next step's loss scale. In device memory.
  const kernels::OptimizerScalars* scalars() const { return state_.scalars.as<const kernels::OptimizerScalars>(); }

  const Config& config() const { return config_; }
  // The schedule multiplies this from the next update on, in place of Config::lr. Positive, and above lr_floor.
  void set_peak(double lr);

 private:
  struct Updated {
    FlatRange range;
    std::int64_t at = 0;       // offset of its state
    std::int64_t tensor = -1;  // index of the tensor that it is a part of; -1: any number of tensors
    Tensor state_of(const Tensor& state) const { return state.slice(0, at, at + range.count); }
  };
  // The tensors of one step.
  struct FlatTensors {
    const Tensor &weights, &gradient, &low_precision;
  };
  void check_state(std::int64_t count) const;
  void divide(const Updated& all, const std::vector<HiddenMatrix>& orthogonalised);
  void divide_by_tensor(const Updated& all);
  void step_scalars(Context& ctx);
  void limit(Context& ctx, const FlatTensors& flat) const;
  void adam(Context& ctx, const Updated& part, const FlatTensors& flat) const;
  void adagrad(Context& ctx, const Updated& part, const FlatTensors& flat) const;

  Config config_;
  State state_;
  Dtype dtype_;                          // type of the weights and of all moments
  std::vector<FlatRange> tensors_;       // adagrad with tensor_clip
  std::vector<Updated> updated_;         // all ranges
  std::vector<Updated> elementwise_;     // those that Adam or Adagrad updates
  std::vector<MatrixGroup> by_muon_;     // those that Muon updates
  std::vector<FactoredGroup> factored_;  // those that Adafactor updates
  std::vector<LimitedRange> limited_;    // in all ranges
};

// The parts of a kind; the parameters must be laid out.
OptimizerParts optimizer_parts(const ParameterSet& parameters, const Optimizer::Config& config);

}  // namespace longstride
