#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/head_matrix.h"
#include "kernels/base/vector.cuh"
#include "kernels/repeat_heads/repeat_heads.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

struct HeadCall {
  HeadMatrix few, many;
  std::int64_t count, n;  // elements of the shared heads; positions
  int shared, repeats, size;

  HeadCall(const Tensor& few_heads, const Tensor& many_heads)
      : few(few_heads),
        many(many_heads),
        count(few_heads.count()),
        n(few_heads.size(1)),
        shared(static_cast<int>(few_heads.size(2))),
        repeats(static_cast<int>(many_heads.size(2) / few_heads.size(2))),
        size(static_cast<int>(few_heads.size(3))) {}
};

// A thread per element of the shared heads.
template <bool backward, class T>
__global__ void __launch_bounds__(threads) repeat_heads_kernel(const HeadCall call) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= call.count) return;
  const std::int64_t c = i % call.size, h = i / call.size % call.shared, row = i / call.size / call.shared,
                     s = row / call.n, t = row % call.n;
  T* const few = static_cast<T*>(call.few.data) + s * call.few.batch + t * call.few.row + h * call.few.head + c;
  T* const many =
      static_cast<T*>(call.many.data) + s * call.many.batch + t * call.many.row + h * call.repeats * call.many.head + c;
  if constexpr (backward) {
    float sum = 0;
    for (int r = 0; r < call.repeats; ++r) sum += to_float(many[r * call.many.head]);
    *few = from_float<T>(sum);
  } else {
    const T x = *few;
    for (int r = 0; r < call.repeats; ++r) many[r * call.many.head] = x;
  }
}

template <bool backward>
void run_heads(const char* name, const HeadCall& call, Dtype type, const Launch& launch) {
  with_gpu_type(type, [&](auto zero) {
    run(name, repeat_heads_kernel<backward, decltype(zero)>, {blocks_for(call.count, threads), threads}, launch, call);
  });
}

}  // namespace

void repeat_heads(const RepeatHeadsArgs& args, const Launch& launch) {
  run_heads<false>("repeat_heads", HeadCall(args.x, args.y), args.x.dtype(), launch);
}

void repeat_heads_backward(const RepeatHeadsBackwardArgs& args, const Launch& launch) {
  run_heads<true>("repeat_heads_backward", HeadCall(args.dx, args.dy), args.dx.dtype(), launch);
}

}  // namespace longstride::kernels::cuda
