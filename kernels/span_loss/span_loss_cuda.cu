#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/span_loss/best_span.h"
#include "kernels/span_loss/span_loss.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

// The softmax of some logits: their largest, and the sum of exponentials below it.
struct Softmax {
  float most = -std::numeric_limits<float>::infinity(), sum = 0;

  __device__ __forceinline__ Softmax join(const Softmax& other) const {
    if (other.sum == 0) return *this;
    if (sum == 0) return other;
    const float highest = fmaxf(most, other.most);
    return {highest, sum * expf(most - highest) + other.sum * expf(other.most - highest)};
  }
};

struct Positions {
  Softmax begins, ends;
  BestSpan<float> span;

  __device__ __forceinline__ Positions join(const Positions& then) const {
    return {begins.join(then.begins), ends.join(then.ends), span.join(then.span)};
  }
};

template <class T>
struct SpanRows {
  const float* logits;
  const int* end;  // null: n
  std::int64_t end_stride;
  const std::uint16_t* targets;
  const float* weights;  // null: 1
  float* losses;
  T* gradient;   // may be null
  float* right;  // likewise
  std::int64_t n;
  double scale;
  const float* loss_scale;
};

// A block has a row, and each of its threads a run of positions. Runs are joined in order.
template <class T>
__global__ void __launch_bounds__(threads) span_loss_kernel(const SpanRows<T> p) {
  __shared__ Positions runs[threads];
  const std::int64_t row = blockIdx.x, end = p.end != nullptr ? p.end[row * p.end_stride] : p.n;
  const std::int64_t each = (end + threads - 1) / threads, own = each * threadIdx.x;
  const auto* const logits = reinterpret_cast<const float2*>(p.logits) + row * p.n;
  Positions run;
  for (std::int64_t t = own; t < own + each && t < end; ++t) {
    const float2 x = logits[t];
    run.begins = run.begins.join({x.x, 1});
    run.ends = run.ends.join({x.y, 1});
    if (t > 0) run.span = run.span.join(BestSpan<float>::of(x.x, x.y, static_cast<std::int32_t>(t)));
  }
  runs[threadIdx.x] = run;
  for (int step = 1; step < threads; step *= 2) {
    __syncthreads();
    if (threadIdx.x % (2 * step) == 0) runs[threadIdx.x] = runs[threadIdx.x].join(runs[threadIdx.x + step]);
  }
  __syncthreads();
  const Softmax all[2] = {runs[0].begins, runs[0].ends};
  const std::uint16_t* const targets = p.targets + 2 * row;
  float weight[2] = {1, 1};
  if (p.weights != nullptr) weight[0] = p.weights[2 * row], weight[1] = p.weights[2 * row + 1];
  if (threadIdx.x < 2) {
    const int c = static_cast<int>(threadIdx.x);
    const float at_target = p.logits[(row * p.n + targets[c]) * 2 + c];
    p.losses[2 * row + c] = weight[c] * (logf(all[c].sum) + all[c].most - at_target);
  }
  if (threadIdx.x == 0 && p.right != nullptr) {
    const SpanPlaces found = best_places(logits[0].x + logits[0].y, runs[0].span), wanted{targets[0], targets[1]};
    p.right[2 * row] = found.first == wanted.first && found.last == wanted.last ? 1.0f : 0.0f;
    p.right[2 * row + 1] = found.shared(wanted);
  }
  if (p.gradient == nullptr) return;
  const float scale =
      static_cast<float>(p.loss_scale != nullptr ? p.scale * static_cast<double>(*p.loss_scale) : p.scale);
  for (std::int64_t i = threadIdx.x; i < 2 * p.n; i += threads) {
    const std::int64_t t = i / 2;
    const int c = static_cast<int>(i % 2);
    float of_logit = 0;
    if (t < end) {
      const float x = p.logits[row * p.n * 2 + i];
      of_logit = scale * weight[c] * (expf(x - all[c].most) / all[c].sum - (t == targets[c] ? 1.0f : 0.0f));
    }
    p.gradient[row * p.n * 2 + i] = from_float<T>(of_logit);
  }
}

}  // namespace

void span_loss(const SpanLossArgs& args, const Launch& launch) {
  with_gpu_type(args.gradient.given() ? args.gradient.dtype() : Dtype::f32, [&](auto zero) {
    using T = decltype(zero);
    const SpanRows<T> p{args.logits.as<const float>(),
                        args.end.as<const int>(),
                        args.end.given() ? args.end.stride(0) : 0,
                        args.targets.as<const std::uint16_t>(),
                        args.weights.as<const float>(),
                        args.losses.as<float>(),
                        args.gradient.as<T>(),
                        args.right.as<float>(),
                        args.logits.size(1),
                        args.scale,
                        args.loss_scale};
    run("span_loss", span_loss_kernel<T>, {static_cast<unsigned>(args.logits.size(0)), threads}, launch, p);
  });
}

}  // namespace longstride::kernels::cuda
