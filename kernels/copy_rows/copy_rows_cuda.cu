#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/copy_rows/copy_rows.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

// Strides and width in units of W.
struct RowCopy {
  std::int64_t groups, rows, width;
  std::int64_t from_group, from_row, to_group, to_row;
};

template <class W>
__global__ void __launch_bounds__(threads) copy_rows_kernel(const RowCopy s, const W* from, W* to) {
  const std::int64_t count = s.rows * s.width;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x, g = blockIdx.y;
  if (i >= count) return;
  const std::int64_t row = i / s.width, column = i % s.width;
  to[g * s.to_group + row * s.to_row + column] = from[g * s.from_group + row * s.from_row + column];
}

template <class W>
void copy_in_units(const CopyRowsArgs& args, const Launch& launch) {
  const auto units = [&](std::int64_t elements) {
    return elements * static_cast<std::int64_t>(bytes_of(args.from.dtype())) / static_cast<std::int64_t>(sizeof(W));
  };
  const Tensor &from = args.from, &to = args.to;
  const RowCopy s{from.size(0),          from.size(1),        units(from.size(2)), units(from.stride(0)),
                  units(from.stride(1)), units(to.stride(0)), units(to.stride(1))};
  run("copy_rows", copy_rows_kernel<W>,
      {dim3(blocks_for(s.rows * s.width, threads), static_cast<unsigned>(s.groups)), threads}, launch, s,
      from.as<const W>(), to.as<W>());
}

}  // namespace

void copy_rows(const CopyRowsArgs& args, const Launch& launch) {
  if (args.from.count() == 0) return;
  const auto bytes = static_cast<std::int64_t>(bytes_of(args.from.dtype()));
  bool packed = args.from.size(2) * bytes % 16 == 0;
  for (const Tensor* v : {&args.from, &args.to})
    packed = packed && aligned(v->data(), 16) && v->stride(0) * bytes % 16 == 0 && v->stride(1) * bytes % 16 == 0;
  if (packed)
    copy_in_units<uint4>(args, launch);
  else if (bytes == 4)
    copy_in_units<std::uint32_t>(args, launch);
  else if (bytes == 2)
    copy_in_units<std::uint16_t>(args, launch);
  else if (bytes == 8)
    copy_in_units<std::uint64_t>(args, launch);
  else
    copy_in_units<std::uint8_t>(args, launch);
}

}  // namespace longstride::kernels::cuda
