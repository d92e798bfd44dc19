// Adam (Kingma and Ba 2015) with decoupled weight decay (Loshchilov and Hutter 2019), the running average of
// weights, and the scalars that drive them. The scalars stay in device memory, so that a step can be captured and
// replayed, and so that a step whose gradient is not finite is skipped without involving the host.
#pragma once
#include <cmath>

#include "kernels/base/host_device.h"
#include "kernels/base/op.h"

namespace longstride::kernels {

// The factor of the warmup: a cosine that spans the whole run; 1; 1 until the last steps, then a line; or 1 until
// `decay_from` steps, then their reciprocal square root.
enum class ScheduleKind : std::uint8_t { cosine, constant, warmup_stable_decay, reciprocal_sqrt };

// At 0-based step s
//   lr(s) = min(1, (s + 1) / warmup) (peak f + floor (1 - f));  0 for s >= steps
// where f is (1 + cos(pi s / steps)) / 2, or 1, or min(1, (steps - s) / decay_steps), or
// sqrt(decay_from / max(s + 1, decay_from)). warmup 0 means none.
struct Schedule {
  double peak = 0;
  std::int64_t warmup = 0;
  std::int64_t steps = 0;
  ScheduleKind kind = ScheduleKind::cosine;
  double floor = 0;
  std::int64_t decay_steps = 0;  // warmup_stable_decay: at least 1
  std::int64_t decay_from = 0;   // reciprocal_sqrt: at least 1
};

// fp16: the loss is multiplied by a power of two, so that small gradients do not vanish in half precision; the gradient
// is divided by it again before Adam. It grows after `interval` consecutive finite gradients and halves when one
// overflows.
struct LossScale {
  static constexpr float first = 65536, most = 16777216;
  static constexpr std::int64_t interval = 2000;
};

struct OptimizerScalars {
  double sum_of_squares = 0;        // scaled gradients: loss_scale times the true ones
  double learning_rate = 0;         // for this step
  double gradient_norm = 0;         // before clipping, of the true gradients
  double clip_coefficient = 1;      // factor of the gradients: min(1, clip / gradient_norm) / loss_scale
  std::int64_t skipped = 0;         // steps of the run whose gradient was not finite
  std::int64_t skipped_in_row = 0;  // up to and including this one
  std::int64_t good_steps = 0;      // since the loss scale last changed
  float loss_scale = 1;             // for the next step
  std::int32_t finite = 1;          // 0: this step's gradient was not finite, and nothing is updated
};

// learning_rate from the schedule; finite, gradient_norm and clip_coefficient from sum_of_squares; then the loss scale
// of the next step.
struct OptimizerScalarsArgs {
  OptimizerScalars* scalars = nullptr;  // device memory
  const std::int64_t* step = nullptr;   // device memory, 0-based
  Schedule schedule;
  double clip = 0;                  // 0: no clipping
  bool dynamic_loss_scale = false;  // if false, loss_scale is 1

  void check(Device) const {}
  Cost cost() const { return {WorkKind::optimizer, 0, 0}; }
};

// Initialises the scalars when a run starts or resumes from a checkpoint.
struct StartScalarsArgs {
  OptimizerScalars* scalars = nullptr;  // device memory
  float loss_scale = 1;
  std::int64_t good_steps = 0;
  std::int64_t skipped = 0;

  void check(Device) const {}
  Cost cost() const { return {WorkKind::optimizer, 0, 0}; }
};

// With t = the updates so far, including this one, and g = clip_coefficient * gradient:
//   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
//   w -= lr (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + decay w)
// where decay applies to elements [0, decayed) only, and low_precision = w, rounded. Nothing is written if
// scalars->finite is 0.
struct AdamArgs {
  Tensor weights;  // (count); all contiguous and of one type, f32 on a GPU
  Tensor gradient;
  Tensor m;
  Tensor v;
  Tensor low_precision =
      {};  // GPU: the copy of the weights, bf16 or f16, that matrix products read; optional, and absent on the CPU
  std::int64_t decayed = 0;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  const OptimizerScalars* scalars = nullptr;
  const std::int64_t* step = nullptr;

  void check(Device device) const;
  Cost cost() const {
    return {WorkKind::optimizer, 2 * bytes_of(weights, m, v) + bytes_of(gradient, low_precision), 0};
  }
};

// average += (1 - d) (weights - average), unless scalars->finite is 0, where d = min(decay, (1 + t) / (10 + t)) and t
// is AdamArgs': while there are few updates, the average is one of the latest and not of the first weights. The average
// of equal weights is these weights, bit for bit.
struct AverageArgs {
  Tensor weights;
  Tensor average;
  double decay = 0;
  const OptimizerScalars* scalars = nullptr;
  const std::int64_t* step = nullptr;

  void check(Device device) const;
  Cost cost() const { return {WorkKind::optimizer, bytes_of(weights) + 2 * bytes_of(average), 0}; }
};

// The optimizer's t of a step that is not skipped: one that is skipped changes nothing that the optimizer knows.
LONGSTRIDE_HOST_DEVICE inline std::int64_t updates_until(const OptimizerScalars& scalars, std::int64_t step) {
  return step + 1 - scalars.skipped;
}

// The average's d at the optimizer's t.
LONGSTRIDE_HOST_DEVICE inline double average_decay(double decay, std::int64_t updates) {
  const double t = static_cast<double>(updates), ramp = (1 + t) / (10 + t);
  return ramp < decay ? ramp : decay;
}

// f above.
LONGSTRIDE_HOST_DEVICE inline double part_of_peak(const Schedule& schedule, std::int64_t step) {
  constexpr double pi = 3.14159265358979323846;
  if (schedule.kind == ScheduleKind::constant) return 1;
  if (schedule.kind == ScheduleKind::cosine)
    return 0.5 * (1 + std::cos(pi * static_cast<double>(step) / static_cast<double>(schedule.steps)));
  if (schedule.kind == ScheduleKind::reciprocal_sqrt)
    return step < schedule.decay_from
               ? 1.0
               : std::sqrt(static_cast<double>(schedule.decay_from) / static_cast<double>(step + 1));
  const std::int64_t left = schedule.steps - step;
  return left < schedule.decay_steps ? static_cast<double>(left) / static_cast<double>(schedule.decay_steps) : 1.0;
}

LONGSTRIDE_HOST_DEVICE inline double learning_rate(const Schedule& schedule, std::int64_t step) {
  if (step >= schedule.steps) return 0;
  const double s = static_cast<double>(step), warm = (s + 1) / static_cast<double>(schedule.warmup);
  const double ramp = schedule.warmup > 0 && warm < 1 ? warm : 1.0;
  const double f = part_of_peak(schedule, step);
  return schedule.peak * ramp * f + schedule.floor * ramp * (1 - f);
}

// The work of optimizer_scalars, on either device.
LONGSTRIDE_HOST_DEVICE inline void update_scalars(const OptimizerScalarsArgs& args) {
  OptimizerScalars& s = *args.scalars;
  const double scale = args.dynamic_loss_scale ? static_cast<double>(s.loss_scale) : 1.0;
  s.learning_rate = learning_rate(args.schedule, *args.step);
  s.finite = std::isfinite(s.sum_of_squares) ? 1 : 0;
  s.gradient_norm = std::sqrt(s.sum_of_squares) / scale;
  s.clip_coefficient = (args.clip > 0 && s.gradient_norm > args.clip ? args.clip / s.gradient_norm : 1.0) / scale;
  if (s.finite != 0) {
    s.skipped_in_row = 0;
    ++s.good_steps;
  } else {
    ++s.skipped;
    ++s.skipped_in_row;
    s.good_steps = 0;
  }
  if (!args.dynamic_loss_scale) {
    s.loss_scale = 1;
  } else if (s.finite == 0) {
    s.loss_scale = s.loss_scale > 2 ? s.loss_scale / 2 : 1;
  } else if (s.good_steps >= LossScale::interval) {
    s.loss_scale = s.loss_scale < LossScale::most ? s.loss_scale * 2 : s.loss_scale;
    s.good_steps = 0;
  }
}

LONGSTRIDE_OP(start_scalars, StartScalarsArgs)
LONGSTRIDE_OP(optimizer_scalars, OptimizerScalarsArgs)
LONGSTRIDE_OP(adam, AdamArgs)
LONGSTRIDE_OP(average, AverageArgs)

}  // namespace longstride::kernels
