// Adam (Kingma and Ba 2015) with decoupled weight decay (Loshchilov and Hutter 2019), the running average of
// weights, and the scalars that drive them. The scalars stay in device memory, so that a step can be captured and
// replayed.
#pragma once
#include "kernels/base/view.h"

namespace longstride::kernels {

// lr(s) = peak min(1, (s + 1) / warmup) (1 + cos(pi s / steps)) / 2 at 0-based step s; 0 from s = steps on.
// Warmup multiplies a cosine that spans the whole run. warmup 0 means none.
struct Schedule {
  double peak = 0;
  std::int64_t warmup = 0;
  std::int64_t steps = 0;
};

struct OptimizerScalars {
  double sum_of_squares = 0;    // of the gradients
  double learning_rate = 0;     // of this step
  double gradient_norm = 0;     // before clipping
  double clip_coefficient = 1;  // what the gradients are multiplied by: min(1, clip / gradient_norm)
};

// learning_rate from the schedule; gradient_norm and clip_coefficient from sum_of_squares.
struct OptimizerScalarsArgs {
  OptimizerScalars* scalars = nullptr;  // device memory
  const std::int64_t* step = nullptr;   // device memory, 0-based
  Schedule schedule;
  double clip = 0;  // 0: no clipping
};

// With t = step + 1 and g = clip_coefficient * gradient:
//   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
//   w -= lr (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + decay w)
// where decay applies to elements [0, decayed) only.
struct AdamArgs {
  View weights;  // (count); all contiguous and of one type
  View gradient;
  View m;
  View v;
  std::int64_t decayed = 0;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  const OptimizerScalars* scalars = nullptr;
  const std::int64_t* step = nullptr;
};

// average = decay average + (1 - decay) weights
struct AverageArgs {
  View weights;
  View average;
  double decay = 0;
};

double learning_rate(const Schedule& schedule, std::int64_t step);

namespace cpu {
void optimizer_scalars(const OptimizerScalarsArgs&, const Launch&);
void adam(const AdamArgs&, const Launch&);
void average(const AverageArgs&, const Launch&);
}  // namespace cpu
namespace cuda {
void optimizer_scalars(const OptimizerScalarsArgs&, const Launch&);
void adam(const AdamArgs&, const Launch&);
void average(const AverageArgs&, const Launch&);
}  // namespace cuda

}  // namespace longstride::kernels
