#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/merge_parts/merge_parts.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256, lanes = 8, block_rows = threads / lanes;  // lanes: of a row

// n elements at a time.
template <int n, class T>
__global__ void __launch_bounds__(threads)
    merge_kernel(const T* parts, const float* lse_parts, T* o, float* lse, std::int64_t pieces, std::int64_t rows,
                 std::int64_t positions, int heads, int size) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * block_rows + threadIdx.x / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  if (index >= rows * heads) return;
  const std::int64_t row = index / heads, head = index % heads;
  const std::int64_t at = (row / positions * heads + head) * positions + row % positions;
  float top = -INFINITY, sum = 0;
  for (std::int64_t p = 0; p < pieces; ++p) top = fmaxf(top, lse_parts[p * rows * heads + at]);
  for (std::int64_t p = 0; p < pieces; ++p) {
    const float of_piece = lse_parts[p * rows * heads + at];
    sum += of_piece > -INFINITY ? expf(of_piece - top) : 0.0f;
  }
  const float merged = sum > 0 ? top + logf(sum) : -INFINITY;
  for (int d = lane * n; d < size; d += lanes * n) {
    float total[n] = {};
    for (std::int64_t p = 0; p < pieces; ++p) {
      const float of_piece = lse_parts[p * rows * heads + at];
      if (!(of_piece > -INFINITY)) continue;
      const float weight = expf(of_piece - merged);
      float x[n];
      load(parts + (p * rows * heads + index) * size + d, x);
#pragma unroll
      for (int e = 0; e < n; ++e) total[e] += weight * x[e];
    }
    store(o + index * size + d, total);
  }
  if (lane == 0) lse[at] = merged;
}

}  // namespace

void merge_parts(const MergePartsArgs& args, const Launch& launch) {
  const std::int64_t rows = args.o.size(0) * args.o.size(1), heads = args.o.size(2), size = args.o.size(3);
  with_gpu_type(args.parts.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const bool packed = size % pack_of<T> == 0 && aligned(args.parts.data(), 16) && aligned(args.o.data(), 16);
    run("merge_parts", packed ? merge_kernel<pack_of<T>, T> : merge_kernel<1, T>,
        {blocks_for(rows * heads, block_rows), threads}, launch, args.parts.as<const T>(),
        args.lse_parts.as<const float>(), args.o.as<T>(), args.lse.as<float>(), args.lse_parts.size(0), rows,
        args.o.size(1), static_cast<int>(heads), static_cast<int>(size));
  });
}

}  // namespace longstride::kernels::cuda
