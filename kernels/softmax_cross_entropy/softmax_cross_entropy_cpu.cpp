#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"

#include <cmath>

#include "kernels/base/fast_math.h"
#include "kernels/base/ids.h"
#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {

void SoftmaxCrossEntropyArgs::check(Device device) const {
  LONGSTRIDE_CHECK(logits.rank() == 2, "logits are {}", logits.shape().text());
  check_vector(logits, logits.count(), exact_type(device, logits.dtype()), "logits");
  check_ids(targets, logits.size(0), "targets");
  if (weights.given()) check_vector(weights, logits.size(0), Dtype::f32, "weights");
  check_vector(losses, logits.size(0), logits.dtype(), "losses");
  if (right.given()) check_vector(right, logits.size(0), Dtype::u8, "right");
  if (!gradient.given()) return;
  check_vector(gradient, logits.count(), device == Device::cpu ? logits.dtype() : gradient.dtype(), "gradient");
  check_computes(device, gradient, "gradient");
}

namespace cpu {
namespace {

template <class T>
T largest(const T* x, std::int64_t n) {
  T most = x[0];
#pragma omp simd reduction(max : most)
  for (std::int64_t j = 0; j < n; ++j) most = x[j] > most ? x[j] : most;
  return most;
}

template <class T>
void run(const SoftmaxCrossEntropyArgs& args) {
  const std::int64_t rows = args.logits.size(0), vocabulary = args.logits.size(1);
  const Ids targets = ids_of(args.targets);
  const auto* weights = args.weights.as<const float>();
  T* losses = args.losses.as<T>();
  auto* right = args.right.as<std::uint8_t>();
  const T of_all =
      static_cast<T>(args.scale * (args.loss_scale != nullptr ? static_cast<double>(*args.loss_scale) : 1));
#pragma omp parallel for schedule(static) if (rows * vocabulary > 16384)
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* x = args.logits.as<const T>() + r * vocabulary;
    const T most = largest(x, vocabulary);
    const T target = x[targets[r]], weight = weights != nullptr ? static_cast<T>(weights[r]) : T{1};
    T sum = 0;
    if (!args.gradient.given()) {
#pragma omp simd reduction(+ : sum)
      for (std::int64_t j = 0; j < vocabulary; ++j) sum += exp_of(x[j] - most);
    } else {
      T* gradient = args.gradient.as<T>() + r * vocabulary;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t j = 0; j < vocabulary; ++j) {
        gradient[j] = exp_of(x[j] - most);
        sum += gradient[j];
      }
      const T scale = of_all * weight, factor = scale / sum;
#pragma omp simd
      for (std::int64_t j = 0; j < vocabulary; ++j) gradient[j] *= factor;
      gradient[targets[r]] -= scale;
    }
    losses[r] = weight * (std::log(sum) + (most - target));
    if (right != nullptr) right[r] = target == most ? 1 : 0;
  }
}

}  // namespace

void softmax_cross_entropy(const SoftmaxCrossEntropyArgs& args, const Launch&) {
  with_float_type(args.logits.dtype(), [&](auto zero) { run<decltype(zero)>(args); });
}

}  // namespace cpu
}  // namespace longstride::kernels
