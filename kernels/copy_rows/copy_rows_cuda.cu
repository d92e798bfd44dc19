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

// n elements per thread; sizes and strides in elements.
template <int n, class From, class To>
__global__ void __launch_bounds__(threads) convert_rows_kernel(const RowCopy s, const From* from, To* to) {
  const std::int64_t packs = s.width / n, i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= s.rows * packs) return;
  const std::int64_t g = blockIdx.y, row = i / packs, column = i % packs * n;
  float x[n];
  load<n>(from + g * s.from_group + row * s.from_row + column, x);
  store<n>(to + g * s.to_group + row * s.to_row + column, x);
}

void convert(const CopyRowsArgs& args, const Launch& launch) {
  constexpr int pack = 4;
  const Tensor &from = args.from, &to = args.to;
  const RowCopy s{from.size(0), from.size(1), from.size(2), from.stride(0), from.stride(1), to.stride(0), to.stride(1)};
  bool packed = from.size(2) % pack == 0;
  for (const Tensor* v : {&from, &to})
    packed = packed && aligned(v->data(), pack * bytes_of(v->dtype())) && v->stride(0) % pack == 0 &&
             v->stride(1) % pack == 0;
  with_gpu_type(from.dtype(), [&](auto from_zero) {
    with_gpu_type(to.dtype(), [&](auto to_zero) {
      using From = decltype(from_zero);
      using To = decltype(to_zero);
      const std::int64_t units = s.rows * (packed ? s.width / pack : s.width);
      run("convert_rows", packed ? convert_rows_kernel<pack, From, To> : convert_rows_kernel<1, From, To>,
          {dim3(blocks_for(units, threads), static_cast<unsigned>(s.groups)), threads}, launch, s,
          from.as<const From>(), to.as<To>());
    });
  });
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
  if (args.from.dtype() != args.to.dtype()) return convert(args, launch);
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
