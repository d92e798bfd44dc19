#include "kernels/adam/adam.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {

void AdamArgs::check(Device device) const {
  check_computes(device, weights, "weights");
  const std::int64_t count = weights.count();
  const Dtype dtype = weights.dtype();
  check_vector(weights, count, exact_type(device, dtype), "weights");
  check_vector(gradient, count, dtype, "gradient");
  check_vector(m, count, dtype, "m");
  check_vector(v, count, dtype, "v");
  if (!low_precision.given()) return;
  LONGSTRIDE_CHECK(device == Device::cuda && bytes_of(low_precision.dtype()) == 2, "low_precision is {}",
                   name_of(low_precision.dtype()));
  check_vector(low_precision, count, low_precision.dtype(), "low_precision");
}

void AverageArgs::check(Device device) const {
  check_vector(weights, weights.count(), exact_type(device, weights.dtype()), "weights");
  check_vector(average, weights.count(), weights.dtype(), "average");
}

namespace cpu {
namespace {

template <class T>
void run(const AdamArgs& args) {
  T* w = args.weights.as<T>();
  const T* gradient = args.gradient.as<const T>();
  T* m = args.m.as<T>();
  T* v = args.v.as<T>();
  const std::int64_t n = args.weights.count();
  const double t = static_cast<double>(updates_until(*args.scalars, *args.step));
  const T scale = static_cast<T>(args.scalars->clip_coefficient);
  const T beta1 = static_cast<T>(args.beta1), one_minus_beta1 = static_cast<T>(1 - args.beta1);
  const T beta2 = static_cast<T>(args.beta2), one_minus_beta2 = static_cast<T>(1 - args.beta2);
  const T rate = static_cast<T>(args.scalars->learning_rate / (1 - std::pow(args.beta1, t)));
  const T v_correction = static_cast<T>(1 / (1 - std::pow(args.beta2, t)));
  const T epsilon = static_cast<T>(args.epsilon);
  const T shrink = static_cast<T>(args.scalars->learning_rate * args.weight_decay);
  constexpr std::int64_t block = 4096;
#pragma omp parallel for schedule(static) if (n > 4 * block)
  for (std::int64_t begin = 0; begin < n; begin += block) {
    const std::int64_t end = std::min(n, begin + block), decayed = std::clamp(args.decayed, begin, end);
    const auto update = [&](std::int64_t from, std::int64_t to, T decay) {
#pragma omp simd
      for (std::int64_t i = from; i < to; ++i) {
        const T g = scale * gradient[i];
        m[i] = beta1 * m[i] + one_minus_beta1 * g;
        v[i] = beta2 * v[i] + one_minus_beta2 * g * g;
        w[i] -= rate * m[i] / (std::sqrt(v[i] * v_correction) + epsilon) + decay * w[i];
      }
    };
    update(begin, decayed, shrink);
    update(decayed, end, T(0));
  }
}

}  // namespace

void start_scalars(const StartScalarsArgs& args, const Launch&) {
  *args.scalars = {};
  args.scalars->loss_scale = args.loss_scale;
  args.scalars->good_steps = args.good_steps;
  args.scalars->skipped = args.skipped;
}

void optimizer_scalars(const OptimizerScalarsArgs& args, const Launch&) { update_scalars(args); }

void adam(const AdamArgs& args, const Launch&) {
  if (args.scalars->finite == 0) return;
  with_float_type(args.weights.dtype(), [&](auto zero) { run<decltype(zero)>(args); });
}

void average(const AverageArgs& args, const Launch&) {
  if (args.scalars->finite == 0) return;
  with_float_type(args.weights.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* w = args.weights.as<const T>();
    T* average = args.average.as<T>();
    const std::int64_t n = args.weights.count();
    const T rest = static_cast<T>(1 - average_decay(args.decay, updates_until(*args.scalars, *args.step)));
#pragma omp parallel for simd schedule(static) if (n > 16384)
    for (std::int64_t i = 0; i < n; ++i) average[i] += rest * (w[i] - average[i]);
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
