#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/gpu/lane.cuh"
#include "kernels/most_used_rows/most_used_rows.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int warps = 8, threads = warps * warp_threads;

struct Rows {
  std::int64_t usage_group, usage_row, usage_head;      // strides in elements
  std::int64_t from_group, from_row, to_group, to_row;  // strides in bytes
  std::int64_t bytes;                                   // per row
  int rows, heads, kept;
};

template <class T>
__device__ inline float sum_of(const Rows& p, const T* usage, std::int64_t g, int r) {
  float sum = 0;
  for (int h = 0; h < p.heads; ++h) sum += to_float(usage[g * p.usage_group + r * p.usage_row + h * p.usage_head]);
  return sum;
}

// True if row r is among the most used: fewer than `kept` rows precede it in the order of sums. Called by whole warps.
__device__ inline bool is_kept(const Rows& p, const float* sums, int r) {
  int before = 0;
  for (int other = this_lane(); other < p.rows; other += warp_threads)
    before += sums[other] > sums[r] || (sums[other] == sums[r] && other < r) ? 1 : 0;
  return __reduce_add_sync(0xFFFFFFFFu, before) < p.kept;
}

// A block per group: sums, then which rows are kept and their places, then copies, a warp per row.
template <class T>
__global__ void __launch_bounds__(threads)
    most_used_rows_kernel(const Rows p, const T* usage, const std::uint8_t* from, std::uint8_t* to) {
  extern __shared__ float memory[];
  float* const sums = memory;
  int* const place = reinterpret_cast<int*>(memory + p.rows);
  const std::int64_t g = blockIdx.x;
  for (int r = this_thread(); r < p.rows; r += threads) sums[r] = sum_of(p, usage, g, r);
  __syncthreads();
  for (int r = this_warp(); r < p.rows; r += warps) {
    const bool kept = is_kept(p, sums, r);
    if (this_lane() == 0) place[r] = kept ? 1 : 0;
  }
  __syncthreads();
  if (this_thread() == 0)
    for (int r = 0, next = 0; r < p.rows; ++r) place[r] = place[r] != 0 ? next++ : -1;
  __syncthreads();
  for (int r = this_warp(); r < p.rows; r += warps) {
    if (place[r] < 0) continue;
    const std::uint8_t* const row = from + g * p.from_group + r * p.from_row;
    std::uint8_t* const out = to + g * p.to_group + place[r] * p.to_row;
    for (std::int64_t b = this_lane() * std::int64_t{2}; b < p.bytes; b += 2 * warp_threads)
      *reinterpret_cast<std::uint16_t*>(out + b) = *reinterpret_cast<const std::uint16_t*>(row + b);
  }
}

}  // namespace

void most_used_rows(const MostUsedRowsArgs& args, const Launch& launch) {
  const Tensor &usage = args.usage, &x = args.x, &y = args.y;
  if (y.count() == 0) return;
  const auto element = static_cast<std::int64_t>(bytes_of(x.dtype()));
  const Rows p{usage.stride(0),
               usage.stride(1),
               usage.stride(2),
               x.stride(0) * element,
               x.stride(1) * element,
               y.stride(0) * element,
               y.stride(1) * element,
               x.size(2) * element,
               static_cast<int>(x.size(1)),
               static_cast<int>(usage.size(2)),
               static_cast<int>(y.size(1))};
  const std::size_t shared = static_cast<std::size_t>(p.rows) * (sizeof(float) + sizeof(int));
  with_gpu_type(usage.dtype(), [&](auto zero) {
    using T = decltype(zero);
    allow_shared(most_used_rows_kernel<T>, shared);
    run("most_used_rows", most_used_rows_kernel<T>, {static_cast<unsigned>(x.size(0)), threads, shared}, launch, p,
        usage.as<const T>(), x.as<const std::uint8_t>(), y.as<std::uint8_t>());
  });
}

}  // namespace longstride::kernels::cuda
