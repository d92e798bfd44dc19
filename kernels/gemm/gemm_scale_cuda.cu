#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/gemm/gemm_product.cuh"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

template <class T>
struct ScaledRows {
  T* c;
  const float *a_scales, *b_scales;
  const T *bias, *addend;  // or null
  std::int64_t rows, columns, c_stride, addend_stride;
};

template <int n, class T>
__global__ void __launch_bounds__(threads) scale_rows(const ScaledRows<T> p) {
  const std::int64_t packs = p.columns / n, i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= p.rows * packs) return;
  const std::int64_t row = i / packs, column = (i - row * packs) * n;
  T* const c = p.c + row * p.c_stride + column;
  const float scale = p.a_scales[row];
  float x[n], more[n];
  load<n>(c, x);
#pragma unroll
  for (int k = 0; k < n; ++k) x[k] *= scale * p.b_scales[column + k];
  if (p.addend != nullptr) {
    load<n>(p.addend + row * p.addend_stride + column, more);
#pragma unroll
    for (int k = 0; k < n; ++k) x[k] += more[k];
  }
  if (p.bias != nullptr) {
    load<n>(p.bias + column, more);
#pragma unroll
    for (int k = 0; k < n; ++k) x[k] += more[k];
  }
  store<n>(c, x);
}

}  // namespace

void scale_product(const GemmArgs& args, const Launch& launch) {
  with_gpu_type(args.c.dtype(), [&](auto zero) {
    using T = decltype(zero);
    constexpr int n = pack_of<T>;
    const bool adds = args.addend.given();
    const ScaledRows<T> p{args.c.as<T>(),
                          args.a_scales.as<const float>(),
                          args.b_scales.as<const float>(),
                          adds_bias(args.epilogue) ? args.bias.as<const T>() : nullptr,
                          adds ? args.addend.as<const T>() : nullptr,
                          args.c.size(0),
                          args.c.size(1),
                          args.c.stride(0),
                          adds ? args.addend.stride(0) : 0};
    const bool packed = p.columns % n == 0 && p.c_stride % n == 0 && p.addend_stride % n == 0 && aligned(p.c, 16) &&
                        aligned(p.addend, 16) && aligned(p.bias, 16);
    run("gemm_scale", packed ? scale_rows<n, T> : scale_rows<1, T>,
        {blocks_for(p.rows * p.columns, threads * (packed ? n : 1)), threads}, launch, p);
  });
}

}  // namespace longstride::kernels::cuda
