#include "kernels/append_rows/append_rows.h"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256;

// Strides in elements.
struct Appended {
  std::int64_t rows, width, capacity;
  std::int64_t x_group, x_row, ring_group, ring_row;
  std::int64_t first;
  const std::int64_t* first_at;
};

template <class W>
__global__ void __launch_bounds__(threads) append_rows_kernel(const Appended s, const W* x, W* ring) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x, g = blockIdx.y;
  if (i >= s.rows * s.width) return;
  const std::int64_t row = i / s.width, column = i % s.width;
  const std::int64_t first = s.first_at != nullptr ? *s.first_at : s.first;
  ring[g * s.ring_group + (first + row) % s.capacity * s.ring_row + column] = x[g * s.x_group + row * s.x_row + column];
}

template <class W>
void append_elements(const AppendRowsArgs& args, const Launch& launch) {
  const Tensor &x = args.x, &ring = args.ring;
  const Appended s{x.size(1),      x.size(2),      ring.size(1), x.stride(0),  x.stride(1),
                   ring.stride(0), ring.stride(1), args.first,   args.first_at};
  run("append_rows", append_rows_kernel<W>,
      {dim3(blocks_for(s.rows * s.width, threads), static_cast<unsigned>(x.size(0))), threads}, launch, s,
      x.as<const W>(), ring.as<W>());
}

}  // namespace

void append_rows(const AppendRowsArgs& args, const Launch& launch) {
  if (args.x.count() == 0) return;
  switch (bytes_of(args.x.dtype())) {
    case 8:
      return append_elements<std::uint64_t>(args, launch);
    case 4:
      return append_elements<std::uint32_t>(args, launch);
    case 2:
      return append_elements<std::uint16_t>(args, launch);
    default:
      return append_elements<std::uint8_t>(args, launch);
  }
}

}  // namespace longstride::kernels::cuda
