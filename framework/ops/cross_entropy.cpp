#include "framework/ops/cross_entropy.h"

#include <algorithm>

#include "framework/ops/linear.h"
#include "framework/ops/run.h"
#include "kernels/base/tensor_checks.h"
#include "kernels/logits_loss/logits_loss.h"

namespace longstride::ops {
namespace {

// Logits of 4 MiB at a time: large enough that the matrix products run at full speed (4096 rows of 256 fp32), small
// enough to stay in a shared cache between the three passes over them, and negligible compared with the model's
// activations. A GPU has 64 MiB: smaller parts leave it idle between kernels, larger ones shorten no step.
std::int64_t chunk_rows(const Context& ctx, std::int64_t rows, std::int64_t vocabulary, Dtype dtype) {
  const std::int64_t bytes = ctx.device == Device::cpu ? 4 << 20 : 64 << 20;
  const std::int64_t fit = bytes / (vocabulary * static_cast<std::int64_t>(bytes_of(dtype)));
  return std::clamp<std::int64_t>(fit, 1, std::max<std::int64_t>(rows, 1));
}

}  // namespace

void cross_entropy(Context& ctx, const CrossEntropy& args) {
  const Tensor hidden = args.hidden.rows();
  const bool backward = args.dhidden.given();
  const std::int64_t rows = hidden.size(0), vocabulary = args.weight.size(0);
  const Dtype dtype = kernels::exact_type(ctx.device, hidden.dtype());
  kernels::check_ids(args.targets, rows, "targets");
  if (args.weights.given()) kernels::check_vector(args.weights, rows, Dtype::f32, "weights");
  kernels::check_vector(args.losses, rows, dtype, "losses");
  const Tensor targets = args.targets.reshape({rows}), losses = args.losses.reshape({rows});
  const Tensor weights = args.weights.given() ? args.weights.reshape({rows}) : Tensor{};
  const Tensor right = args.right.given() ? args.right.reshape({rows}) : Tensor{};
  const std::int64_t chunk = chunk_rows(ctx, rows, vocabulary, dtype);
  Scratch scratch(ctx);
  Context exact = ctx.without_fp8();
  const Tensor gradients = backward ? scratch.tensor({chunk, vocabulary}, hidden.dtype()) : Tensor{};
  // The logits, and in backward the two products that use their gradient. The logits need never leave the caches.
  const double products = (backward ? 3 : 1) * 2.0 * static_cast<double>(rows * vocabulary * hidden.size(1));
  const kernels::MeteredRange range(ctx.launch.meter,
                                    {kernels::WorkKind::loss, kernels::bytes_of(hidden, args.dhidden), products});
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t end = std::min(rows, begin + chunk);
    const Tensor part = hidden.slice(0, begin, end);
    const Tensor dlogits = backward ? gradients.slice(0, 0, end - begin) : Tensor();
    run(ctx, kernels::LogitsLossArgs{.hidden = part,
                                     .weight = args.weight,
                                     .bias = args.bias,
                                     .targets = targets.slice(0, begin, end),
                                     .losses = losses.slice(0, begin, end),
                                     .gradient = dlogits,
                                     .scale = args.scale,
                                     .loss_scale = backward ? ctx.loss_scale : nullptr,
                                     .weights = weights.given() ? weights.slice(0, begin, end) : Tensor{},
                                     .right = right.given() ? right.slice(0, begin, end) : Tensor{}});
    if (!backward) continue;
    linear_backward_weight(ctx, dlogits, part, args.dweight, args.dbias);
    linear_backward_input(exact, dlogits, args.weight, args.dhidden.rows().slice(0, begin, end));
  }
}

}  // namespace longstride::ops
