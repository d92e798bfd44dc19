#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/global_rows/global_row.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

__global__ void __launch_bounds__(threads) global_rows_kernel(const GlobalRowsOut out, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  const std::int32_t each = out.n + out.added;
  if (i < count) out.write(i / each, static_cast<std::int32_t>(i % each));
}

}  // namespace

void global_rows(const GlobalRowsArgs& args, const Launch& launch) {
  const GlobalRowsOut out(args);
  const std::int64_t count = args.sight.positions_by_rows.begin.size(0) * (out.n + out.added);
  if (count == 0) return;
  run("global_rows", global_rows_kernel, {blocks_for(count, threads), threads}, launch, out, count);
}

}  // namespace longstride::kernels::cuda
