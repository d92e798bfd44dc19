// The settings of a training run, as a recipe's `train:` gives them.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/optim/optimizer_kind.h"
#include "kernels/adam/adam.h"

namespace longstride {

// automatic: fp32 on the CPU, bf16 on a GPU. fp8: bf16, but the products of linear layers multiply operands of 8 bits.
enum class Precision : std::uint8_t { automatic, fp32, bf16, fp16, fp8 };

// The meaning of train.lr with the schedule reciprocal_sqrt: the largest learning rate, or the factor of 1 /
// sqrt(step).
enum class LearningRateIs : std::uint8_t { peak, factor };

// The exchange of gradients during the backward pass. automatic: unless all ranks are GPUs of one host, linked by
// NVLink.
enum class Overlap : std::uint8_t { automatic, always, never };

// How a run is spread over ranks; this changes nothing but rounding.
struct ParallelConfig {
  std::int64_t sequence_ranks = 1;              // ranks that hold a sequence together, an equal run of positions each
  Precision gradients = Precision::automatic;   // type for averaging; automatic: as `precision` (the paper)
  std::int64_t bucket = std::int64_t{8} << 20;  // gradients exchanged at a time
  Overlap overlap = Overlap::automatic;
  bool shard = false;           // a rank keeps and updates only its part of the optimizer's state
  bool exchange_alone = false;  // exchange even with one rank: for tests of the exchange itself
};

// Settings before optimizer step `until` (stages.h). Without a batch of its own a stage reads the rows that the run
// reads, each as consecutive sequences of `context` positions: bytes per step and their order are unaffected. With one
// it reads rows of `context` positions.
struct Stage {
  std::int64_t until = 0;
  std::int64_t context = 0;               // a sequence's; divides the full context unless the stage has its own batch
  double lr = 0;                          // in place of TrainConfig::lr; 0: that
  std::int64_t global_batch = 0;          // in place of TrainConfig's; 0: that
  std::int64_t micro_batch = 0;           // likewise
  std::vector<std::int64_t> window = {};  // attention's, in place of the model's: every layer's, or one; empty: that
};

struct TrainConfig {
  std::int64_t steps = 0;
  std::int64_t global_batch = 0;  // sequences in one optimizer step, over all ranks
  std::int64_t micro_batch = 0;   // sequences in one forward and backward of one rank; 0: global_batch / ranks
  double lr = 0;
  std::int64_t warmup = 5000;  // steps of linear warmup
  kernels::ScheduleKind schedule = kernels::ScheduleKind::cosine;
  double lr_floor = 0;           // the learning rate that the schedule approaches at `steps`
  std::int64_t decay_steps = 0;  // warmup_stable_decay: the last steps, in which it falls; 0: last_tenth()
  std::int64_t decay_from = 0;   // reciprocal_sqrt: the step after which it falls; 0: the warmup's last
  LearningRateIs lr_is = LearningRateIs::peak;
  OptimizerKind optimizer = OptimizerKind::adam;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0.01;   // decoupled; matrices and tables only
  double tensor_clip = 0;       // adagrad: gradient norm of a tensor above which its learning rate falls; 0: never
  double decay_rate = 0.8;      // adafactor: the second moments forget a share of step^-decay_rate
  double clip_threshold = 1;    // adafactor: largest root mean square of a tensor's update, before the learning rate
  bool scale_parameter = true;  // adafactor: the learning rate of a tensor is multiplied by its root mean square
  double clip = 1.0;            // global gradient norm; 0: no clipping
  double ema = 0;               // largest decay of the running average of weights; 0: none. The released code has 0.999
  Precision precision = Precision::automatic;
  Precision residual = Precision::automatic;  // residual stream and its gradient on a GPU; see low_precision_residual
  std::uint64_t seed = 1;
  bool graph = true;  // on a GPU: replay the whole step as one CUDA graph; false only to debug, the bits are the same
  std::int64_t log_every = 10;
  std::int64_t checkpoint_every = 1000;
  std::int64_t keep = 3;              // number of newest checkpoints kept; 0: all
  bool keep_best = false;             // and the one with the lowest validation loss
  std::string mirror;                 // folder for a second copy of each checkpoint; empty: none
  std::int64_t evaluate_every = 0;    // steps; 0: only at the end
  std::int64_t evaluate_windows = 0;  // windows of the validation split scored each time; 0: all
  std::int64_t sample_every = 0;      // steps between samples, which are also drawn at the end; 0: never
  std::int64_t sample_count = 1;      // samples drawn each time
  std::int64_t sample_length = 0;     // bytes of each; 0: the context
  double hang_seconds = 25;           // a rank that is silent or stuck for this long ends the job; 0: no watchdog
  std::vector<Stage> stages;          // `until` increases, `context` does not fall; empty: full context throughout
  ParallelConfig parallel;

  std::int64_t last_tenth() const { return std::max<std::int64_t>(1, steps / 10); }
  std::int64_t steps_of_decay() const { return decay_steps > 0 ? decay_steps : last_tenth(); }
  std::int64_t first_of_decay() const { return decay_from > 0 ? decay_from : std::max<std::int64_t>(1, warmup); }
  // The largest learning rate, without stages that have one of their own.
  double peak() const { return peak_of(lr); }
  double peak_of(double rate) const {
    const bool factor = schedule == kernels::ScheduleKind::reciprocal_sqrt && lr_is == LearningRateIs::factor;
    return factor ? rate / std::sqrt(static_cast<double>(first_of_decay())) : rate;
  }
  // The learning rate that the schedule multiplies at 0-based optimizer step `step`.
  double peak_at(std::int64_t step) const {
    for (const Stage& stage : stages)
      if (step < stage.until) return peak_of(stage.lr > 0 ? stage.lr : lr);
    return peak();
  }
};

}  // namespace longstride
