#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/head_matrix.h"
#include "kernels/base/vector.cuh"
#include "kernels/scale_heads/scale_heads.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256, warps = threads / 32;

struct ScaleCall {
  HeadMatrix x, y, add;  // backward: y is dy, add is dx
  const float* scale;
  float* dscale = nullptr;
  std::int64_t rows, n;
  int heads, size;
  bool shared, adds = false;

  template <class Args>
  explicit ScaleCall(const Args& args)
      : x(args.x),
        scale(args.scale.template as<const float>()),
        rows(args.x.size(0) * args.x.size(1) * args.x.size(2)),
        n(args.x.size(1)),
        heads(static_cast<int>(args.x.size(2))),
        size(static_cast<int>(args.x.size(3))),
        shared(args.scale.rank() == 1) {}

  template <class T>
  __device__ T* at(const HeadMatrix& of, std::int64_t row) const {
    const std::int64_t h = row % heads, t = row / heads % n, s = row / heads / n;
    return static_cast<T*>(of.data) + s * of.batch + t * of.row + h * of.head;
  }
  __device__ float scale_of(std::int64_t row) const { return scale[shared ? row % heads : row]; }
};

// A thread per element.
template <class T>
__global__ void __launch_bounds__(threads) scale_heads_kernel(const ScaleCall call) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x, row = i / call.size,
                     c = i % call.size;
  if (row >= call.rows) return;
  const float sum = call.add.data != nullptr ? to_float(call.at<T>(call.add, row)[c]) : 0.0f;
  call.at<T>(call.y, row)[c] = from_float<T>(sum + call.scale_of(row) * to_float(call.at<T>(call.x, row)[c]));
}

// A warp per row.
template <class T>
__global__ void __launch_bounds__(threads) scale_heads_backward_kernel(const ScaleCall call) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= call.rows) return;
  const T *x = call.at<T>(call.x, row), *dy = call.at<T>(call.y, row);
  T* dx = call.at<T>(call.add, row);
  const float scale = call.scale_of(row);
  float sum = 0;
  for (int c = lane; c < call.size; c += 32) {
    const float d = to_float(dy[c]);
    sum += d * to_float(x[c]);
    dx[c] = from_float<T>((call.adds ? to_float(dx[c]) : 0.0f) + scale * d);
  }
  sum = warp_sum(sum);
  if (lane == 0) call.dscale[row] = sum;
}

}  // namespace

void scale_heads(const ScaleHeadsArgs& args, const Launch& launch) {
  ScaleCall call(args);
  call.y = HeadMatrix(args.y), call.add = HeadMatrix(args.add);
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    run("scale_heads", scale_heads_kernel<decltype(zero)>, {blocks_for(args.x.count(), threads), threads}, launch,
        call);
  });
}

void scale_heads_backward(const ScaleHeadsBackwardArgs& args, const Launch& launch) {
  ScaleCall call(args);
  call.y = HeadMatrix(args.dy), call.add = HeadMatrix(args.dx);
  call.dscale = args.dscale.as<float>(), call.adds = args.adds;
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    run("scale_heads_backward", scale_heads_backward_kernel<decltype(zero)>, {blocks_for(call.rows, warps), threads},
        launch, call);
  });
}

}  // namespace longstride::kernels::cuda
