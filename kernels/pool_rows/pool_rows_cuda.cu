#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/pool_rows/pool_rows.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

// Strides in elements.
struct Pools {
  std::int64_t rows, width, rate;
  std::int64_t from_group, from_row, to_group, to_row;
  bool largest;
};

// n elements per thread.
template <int n, class T>
__global__ void __launch_bounds__(threads) pool_rows_kernel(const Pools p, const T* from, T* to) {
  const std::int64_t packs = p.width / n, i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= p.rows * packs) return;
  const std::int64_t row = i / packs, column = i % packs * n;
  const T* const first = from + blockIdx.y * p.from_group + row * p.rate * p.from_row + column;
  float all[n];
  load<n>(first, all);
  for (std::int64_t k = 1; k < p.rate; ++k) {
    float next[n];
    load<n>(first + k * p.from_row, next);
#pragma unroll
    for (int e = 0; e < n; ++e) all[e] = p.largest ? fmaxf(all[e], next[e]) : all[e] + next[e];
  }
  if (!p.largest)
#pragma unroll
    for (int e = 0; e < n; ++e) all[e] /= static_cast<float>(p.rate);
  store<n>(to + blockIdx.y * p.to_group + row * p.to_row + column, all);
}

}  // namespace

void pool_rows(const PoolRowsArgs& args, const Launch& launch) {
  constexpr int pack = 4;
  const Tensor &x = args.x, &y = args.y;
  if (y.count() == 0) return;
  const Pools p{y.size(1), y.size(2), args.rate, x.stride(0), x.stride(1), y.stride(0), y.stride(1), args.largest};
  bool packed = y.size(2) % pack == 0;
  for (const Tensor* v : {&x, &y})
    packed = packed && aligned(v->data(), pack * bytes_of(v->dtype())) && v->stride(0) % pack == 0 &&
             v->stride(1) % pack == 0;
  with_gpu_type(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t units = p.rows * (packed ? p.width / pack : p.width);
    run("pool_rows", packed ? pool_rows_kernel<pack, T> : pool_rows_kernel<1, T>,
        {dim3(blocks_for(units, threads), static_cast<unsigned>(y.size(0))), threads}, launch, p, x.as<const T>(),
        y.as<T>());
  });
}

}  // namespace longstride::kernels::cuda
