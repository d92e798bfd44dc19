#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/global_rows/global_row.h"
#include "kernels/gpu/lane.cuh"
#include "kernels/group_contrast/group_contrast.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int warps = 8, threads = warps * warp_threads;

struct Contrast {
  const std::int32_t *groups, *end;
  const std::uint8_t* narrow;  // ids of 8 bits, or null
  const std::uint16_t* wide;
  const float *weights, *table, *loss_scale;
  float *e, *losses;
  int n, added, width;
  float scale;

  __device__ GlobalRowsOf of(std::int64_t row) const {
    return {groups + row * n, end == nullptr ? n : end[row * n], added, true};
  }
  __device__ float* e_of(std::int64_t row, int g) const { return e + (row * added + g) * width; }
  __device__ int id(std::int64_t at) const { return wide != nullptr ? wide[at] : narrow[at]; }
  __device__ bool weighs(std::int64_t row, int position) const { return weights[row * n + position] > 0; }
};

// The mean of a group's vectors: a block per global row.
__global__ void __launch_bounds__(threads) mean_kernel(const Contrast p) {
  const int g = static_cast<int>(blockIdx.x);
  const std::int64_t row = blockIdx.y;
  const GlobalRowsOf of = p.of(row);
  const Interval positions = g < of.first() ? Interval{0, 0} : of.positions(g);
  const float count = static_cast<float>(max(positions.end - positions.begin, 1));
  for (int c = static_cast<int>(threadIdx.x); c < p.width; c += threads) {
    float sum = 0;
    for (int i = positions.begin; i < positions.end; ++i)
      sum += p.table[static_cast<std::int64_t>(p.id(row * p.n + i)) * p.width + c];
    p.e_of(row, g)[c] = sum / count;
  }
}

// Leaves the mean of the rows in use out: a thread per column.
__global__ void __launch_bounds__(threads) centre_kernel(const Contrast p) {
  const int c = static_cast<int>(blockIdx.x * threads + threadIdx.x);
  if (c >= p.width) return;
  const std::int64_t row = blockIdx.y;
  const int first = p.of(row).first();
  float sum = 0;
  for (int g = first; g < p.added; ++g) sum += p.e_of(row, g)[c];
  const float mean = sum / static_cast<float>(p.added - first);
  for (int g = first; g < p.added; ++g) p.e_of(row, g)[c] -= mean;
}

__global__ void __launch_bounds__(threads) normalise_kernel(const Contrast p, std::int64_t rows) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / warp_threads;
  if (at >= rows) return;
  float* const e = p.e + at * p.width;
  float squares = 0;
  for (int c = this_lane(); c < p.width; c += warp_threads) squares = fmaf(e[c], e[c], squares);
  const float mean = warp_sum(squares) / static_cast<float>(p.width);
  const float factor = 1 / sqrtf(mean + static_cast<float>(GroupContrastArgs::epsilon));
  for (int c = this_lane(); c < p.width; c += warp_threads) e[c] *= factor;
}

// A block per global row.
template <class T>
__global__ void __launch_bounds__(threads) contrast_kernel(const Contrast p, const T* z, T* dz) {
  __shared__ float scores[GroupContrastArgs::most_rows];
  __shared__ int count, own;
  const int g = static_cast<int>(blockIdx.x), tid = static_cast<int>(threadIdx.x);
  const std::int64_t row = blockIdx.y, at = row * p.added + g;
  const GlobalRowsOf of = p.of(row);
  const int first = of.first();
  z += at * p.width;
  dz += at * p.width;
  if (tid == 0) count = own = 0;
  __syncthreads();
  for (int r = first + tid; r < p.added; r += threads) {
    const Interval positions = of.positions(r);
    bool asked = positions.begin < positions.end;
    for (int i = positions.begin; asked && i < positions.end; ++i) asked = p.weighs(row, i);
    if (asked) atomicAdd(&count, 1);
    if (asked && r == g) own = 1;
  }
  __syncthreads();
  if (own == 0) {
    for (int c = tid; c < p.width; c += threads) dz[c] = from_float<T>(0.0f);
    if (tid == 0) p.losses[at] = 0;
    return;
  }
  const float root = 1 / sqrtf(static_cast<float>(p.width)), scale = p.scale / static_cast<float>(count);
  for (int j = first + tid / warp_threads; j < p.added; j += warps) {
    float sum = 0;
    for (int c = this_lane(); c < p.width; c += warp_threads) sum = fmaf(to_float(z[c]), p.e_of(row, j)[c], sum);
    sum = warp_sum(sum);
    if (this_lane() == 0) scores[j] = sum * root;
  }
  __syncthreads();
  // Every warp for itself, in one order.
  float top = -INFINITY, sum = 0;
  for (int j = first + this_lane(); j < p.added; j += warp_threads) top = fmaxf(top, scores[j]);
  for (int offset = 1; offset < warp_threads; offset *= 2) top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, offset));
  for (int j = first + this_lane(); j < p.added; j += warp_threads) sum += expf(scores[j] - top);
  sum = warp_sum(sum);
  if (tid == 0) p.losses[at] = scale * (logf(sum) + top - scores[g]);
  const float slope = scale * root * (p.loss_scale != nullptr ? *p.loss_scale : 1.0f);
  for (int c = tid; c < p.width; c += threads) {
    float d = 0;
    for (int j = first; j < p.added; ++j)
      d = fmaf(expf(scores[j] - top) / sum - (j == g ? 1.0f : 0.0f), p.e_of(row, j)[c], d);
    dz[c] = from_float<T>(slope * d);
  }
}

}  // namespace

void group_contrast(const GroupContrastArgs& args, const Launch& launch) {
  if (args.z.count() == 0) return;
  const bool wide = args.targets.dtype() == Dtype::u16;
  const Contrast p{args.groups.as<const std::int32_t>(),
                   args.end.as<const std::int32_t>(),
                   wide ? nullptr : args.targets.as<const std::uint8_t>(),
                   wide ? args.targets.as<const std::uint16_t>() : nullptr,
                   args.weights.as<const float>(),
                   args.table.as<const float>(),
                   args.loss_scale,
                   args.e.as<float>(),
                   args.losses.as<float>(),
                   static_cast<int>(args.groups.size(1)),
                   static_cast<int>(args.z.size(1)),
                   static_cast<int>(args.z.size(2)),
                   static_cast<float>(args.scale)};
  const auto rows = static_cast<unsigned>(args.z.size(0));
  const dim3 each(static_cast<unsigned>(p.added), rows);
  const std::int64_t all = args.z.size(0) * args.z.size(1);
  run("group_contrast mean", mean_kernel, {each, threads}, launch, p);
  run("group_contrast centre", centre_kernel, {dim3(blocks_for(p.width, threads), rows), threads}, launch, p);
  run("group_contrast normalise", normalise_kernel, {blocks_for(all, warps), threads}, launch, p, all);
  with_gpu_type(args.z.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("group_contrast", contrast_kernel<T>, {each, threads}, launch, p, args.z.as<const T>(), args.dz.as<T>());
  });
}

}  // namespace longstride::kernels::cuda
