#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/group_bounds/group_bounds.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

// Each position by bisection.
__global__ void __launch_bounds__(threads)
    group_bounds_kernel(const int* groups, std::int64_t count, int n, int* begins, int* ends) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count) return;
  const int* row = groups + i / n * n;
  const int group = groups[i], here = static_cast<int>(i % n);
  int begin = 0, last = here;  // the first of the group is in [begin, last]
  while (begin < last) {
    const int middle = begin + (last - begin) / 2;
    if (row[middle] < group)
      begin = middle + 1;
    else
      last = middle;
  }
  int end = here + 1, most = n;  // the first beyond it is in [end, most]
  while (end < most) {
    const int middle = end + (most - end) / 2;
    if (row[middle] > group)
      most = middle;
    else
      end = middle + 1;
  }
  begins[i] = begin;
  ends[i] = end;
}

}  // namespace

void group_bounds(const GroupBoundsArgs& args, const Launch& launch) {
  const std::int64_t count = args.groups.count();
  if (count == 0) return;
  run("group_bounds", group_bounds_kernel, {blocks_for(count, threads), threads}, launch, args.groups.as<const int>(),
      count, static_cast<int>(args.groups.size(1)), args.begin.as<int>(), args.end.as<int>());
}

}  // namespace longstride::kernels::cuda
