#include "kernels/span_loss/span_loss.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/tensor_checks.h"
#include "kernels/span_loss/best_span.h"

namespace longstride::kernels {

void SpanLossArgs::check(Device device) const {
  LONGSTRIDE_CHECK(logits.rank() == 3 && logits.size(1) > 0 && logits.size(2) == 2, "logits are {}",
                   logits.shape().text());
  const std::int64_t rows = logits.size(0);
  check_vector(logits, logits.count(), exact_type(device, logits.dtype()), "logits");
  check_vector(targets, 2 * rows, Dtype::u16, "targets");
  check_vector(losses, 2 * rows, logits.dtype(), "losses");
  if (weights.given()) check_vector(weights, 2 * rows, Dtype::f32, "weights");
  if (right.given()) check_vector(right, 2 * rows, Dtype::f32, "right");
  if (end.given())
    LONGSTRIDE_CHECK(end.shape() == Shape({rows, 1}) && end.dtype() == Dtype::i32, "end is {}", end.shape().text());
  if (!gradient.given()) return;
  check_vector(gradient, logits.count(), device == Device::cpu ? logits.dtype() : gradient.dtype(), "gradient");
  check_computes(device, gradient, "gradient");
}

namespace cpu {
namespace {

// One of the two choices of a row.
template <class T>
struct Choice {
  const T* logits;  // two apart
  std::int64_t end;
  std::int64_t target;
  T weight;

  T most() const {
    T most = logits[0];
    for (std::int64_t t = 1; t < end; ++t) most = std::max(most, logits[2 * t]);
    return most;
  }
  // Returns the loss; a gradient, if there is one, is multiplied by `scale`.
  T loss(T scale, T* gradient) const {
    const T highest = most();
    T sum = 0;
    for (std::int64_t t = 0; t < end; ++t) sum += std::exp(logits[2 * t] - highest);
    for (std::int64_t t = 0; gradient != nullptr && t < end; ++t)
      gradient[2 * t] = scale * weight * (std::exp(logits[2 * t] - highest) / sum - (t == target ? T(1) : T(0)));
    return weight * (std::log(sum) + highest - logits[2 * target]);
  }
};

template <class T>
SpanPlaces best(const T* logits, std::int64_t end) {
  BestSpan<T> others;
  for (std::int64_t t = 1; t < end; ++t)
    others = others.join(BestSpan<T>::of(logits[2 * t], logits[2 * t + 1], static_cast<std::int32_t>(t)));
  return best_places(logits[0] + logits[1], others);
}

}  // namespace

void span_loss(const SpanLossArgs& args, const Launch&) {
  const std::int64_t rows = args.logits.size(0), n = args.logits.size(1);
  with_float_type(args.logits.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T scale =
        static_cast<T>(args.scale * (args.loss_scale != nullptr ? static_cast<double>(*args.loss_scale) : 1));
#pragma omp parallel for schedule(static) if (args.logits.count() > 16384)
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t end = args.end.given() ? args.end.as<const std::int32_t>()[r * args.end.stride(0)] : n;
      const T* const logits = args.logits.as<const T>() + r * n * 2;
      T* const gradient = args.gradient.given() ? args.gradient.as<T>() + r * n * 2 : nullptr;
      const auto* const targets = args.targets.as<const std::uint16_t>() + 2 * r;
      for (std::int64_t c = 0; c < 2; ++c) {
        const T weight = args.weights.given() ? static_cast<T>(args.weights.as<const float>()[2 * r + c]) : T(1);
        args.losses.as<T>()[2 * r + c] =
            Choice<T>{logits + c, end, targets[c], weight}.loss(scale, gradient != nullptr ? gradient + c : nullptr);
      }
      if (gradient != nullptr) std::fill(gradient + 2 * end, gradient + 2 * n, T(0));
      if (!args.right.given()) continue;
      const SpanPlaces found = best(logits, end), wanted{targets[0], targets[1]};
      auto* const right = args.right.as<float>() + 2 * r;
      right[0] = found.first == wanted.first && found.last == wanted.last ? 1.0f : 0.0f;
      right[1] = found.shared(wanted);
    }
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
