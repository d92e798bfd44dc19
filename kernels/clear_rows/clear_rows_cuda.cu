#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/clear_rows/clear_rows.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

// A row has `width` units of W and many blocks, which read its mark and usually end.
template <class W>
__global__ void __launch_bounds__(threads) clear_rows_kernel(W* x, std::int64_t width, const std::uint8_t* marked) {
  if (marked[blockIdx.y] == 0) return;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i < width) x[blockIdx.y * width + i] = W{};
}

template <class W>
void clear_in_units(const ClearRowsArgs& args, const Launch& launch) {
  const std::int64_t width = static_cast<std::int64_t>(args.x.bytes() / sizeof(W)) / args.x.size(0);
  run("clear_rows", clear_rows_kernel<W>,
      {dim3(blocks_for(width, threads), static_cast<unsigned>(args.x.size(0))), threads}, launch, args.x.as<W>(), width,
      args.marked.as<const std::uint8_t>());
}

}  // namespace

void clear_rows(const ClearRowsArgs& args, const Launch& launch) {
  if (args.x.count() == 0) return;
  const std::size_t row = static_cast<std::size_t>(args.x.size(1)) * bytes_of(args.x.dtype());
  if (row % sizeof(uint4) == 0 && aligned(args.x.data(), sizeof(uint4)))
    clear_in_units<uint4>(args, launch);
  else
    clear_in_units<std::uint8_t>(args, launch);
}

}  // namespace longstride::kernels::cuda
