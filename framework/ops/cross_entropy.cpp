#include "framework/ops/cross_entropy.h"

#include <algorithm>

#include "framework/ops/basic.h"
#include "framework/ops/dispatch.h"
#include "framework/ops/linear.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"

namespace longstride::ops {
namespace {

// Logits of 4 MiB at a time: large enough that the matrix products run at full speed (4096 rows of 256 fp32), small
// enough to stay in a shared cache between the three passes over them, and nothing beside the activations of the model.
// On a GPU full speed takes more, 32 MiB, and they stay in its second-level cache.
std::int64_t chunk_rows(const Context& ctx, std::int64_t rows, std::int64_t vocabulary, Dtype dtype) {
  const std::int64_t bytes = ctx.device == Device::cpu ? 4 << 20 : 32 << 20;
  const std::int64_t fit = bytes / (vocabulary * static_cast<std::int64_t>(bytes_of(dtype)));
  return std::clamp<std::int64_t>(fit, 1, std::max<std::int64_t>(rows, 1));
}

Tensor flat(const Tensor& t, const char* name) {
  check_contiguous(t, name);
  return t.reshape({t.count()});
}

struct Gradient {
  double scale;
  Tensor dhidden;  // (rows, width)
  Tensor dweight;
};

void run(Context& ctx, const Tensor& hidden, const Tensor& weight, const Tensor& targets, const Tensor& losses,
         const Gradient* gradient) {
  const std::int64_t rows = hidden.size(0), vocabulary = weight.size(0);
  LONGSTRIDE_CHECK(weight.rank() == 2 && weight.size(1) == hidden.size(1), "hidden {} and weight {} do not match",
                   hidden.shape().text(), weight.shape().text());
  check_vector(targets, rows, Dtype::u8, "targets");
  const Dtype dtype = wide(ctx, hidden.dtype());
  check_vector(losses, rows, dtype, "losses");
  const std::int64_t chunk = chunk_rows(ctx, rows, vocabulary, dtype);
  Scratch scratch(ctx);
  const Tensor buffer = scratch.tensor({chunk, vocabulary}, dtype);
  const Tensor gradients =
      gradient == nullptr || hidden.dtype() == dtype ? buffer : scratch.tensor({chunk, vocabulary}, hidden.dtype());
  // Logits, and where there is a gradient the two products that use it; the logits need never leave the caches.
  const double products = (gradient == nullptr ? 1 : 3) * 2.0 * static_cast<double>(rows * vocabulary * hidden.size(1));
  const double moved = static_cast<double>(hidden.bytes() + (gradient == nullptr ? 0 : gradient->dhidden.bytes()));
  const kernels::MeteredRange range(ctx.launch, {kernels::Work::loss, moved, products});
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t end = std::min(rows, begin + chunk);
    const Tensor part = hidden.slice(0, begin, end), logits = buffer.slice(0, 0, end - begin);
    linear(ctx, part, weight, {}, logits);
    kernels::SoftmaxCrossEntropyArgs args;
    args.logits = logits.view();
    args.targets = targets.slice(0, begin, end).view();
    args.losses = losses.slice(0, begin, end).view();
    const Tensor dlogits = gradients.slice(0, 0, end - begin);
    if (gradient != nullptr) {
      args.gradient = dlogits.view();
      args.scale = gradient->scale;
      args.loss_scale = ctx.loss_scale;
    }
    if (!ctx.planning()) launch(ctx, kernels::cpu::softmax_cross_entropy, kernels::cuda::softmax_cross_entropy, args);
    if (gradient == nullptr) continue;
    linear_backward_weight(ctx, dlogits, part, gradient->dweight, {});
    linear_backward_input(ctx, dlogits, weight, gradient->dhidden.slice(0, begin, end));
  }
}

}  // namespace

void cross_entropy(Context& ctx, const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                   const Tensor& losses) {
  run(ctx, hidden.rows(), weight, flat(targets, "targets"), flat(losses, "losses"), nullptr);
}

void cross_entropy_with_gradient(Context& ctx, const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                                 double scale, const Tensor& losses, const Tensor& dhidden, const Tensor& dweight) {
  const Gradient gradient{scale, dhidden.rows(), dweight};
  run(ctx, hidden.rows(), weight, flat(targets, "targets"), flat(losses, "losses"), &gradient);
}

}  // namespace longstride::ops
