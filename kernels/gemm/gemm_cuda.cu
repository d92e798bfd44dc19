#include "kernels/activation/activation.h"
#include "kernels/base/add_partials.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/meter.h"
#include "kernels/base/vector.cuh"
#include "kernels/gemm/activation.cuh"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_gelu_sm90.h"
#include "kernels/gemm/gemm_product.cuh"

namespace longstride::kernels::cuda {
namespace {

// The pass after the product: activated = gelu(c).
constexpr int threads = 256;

template <int n, class T>
__global__ void __launch_bounds__(threads) gelu_rows(const T* c, T* activated, std::int64_t rows, std::int64_t columns,
                                                     std::int64_t c_stride, std::int64_t activated_stride) {
  const std::int64_t packs = columns / n, i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= rows * packs) return;
  const std::int64_t row = rows == 1 ? 0 : i / packs, column = (i - row * packs) * n;
  float x[n];
  load<n>(c + row * c_stride + column, x);
#pragma unroll
  for (int k = 0; k < n; ++k) x[k] = gelu_of<T>(x[k]);
  store<n>(activated + row * activated_stride + column, x);
}

void gelu_pass(const GemmArgs& args, const Launch& launch) {
  std::int64_t rows = args.c.size(0), columns = args.c.size(1);
  const std::int64_t c_stride = args.c.stride(0), activated_stride = args.activated.stride(0);
  if (c_stride == columns && activated_stride == columns) {  // one long row: nothing to divide
    columns *= rows;
    rows = 1;
  }
  with_gpu_type(args.c.dtype(), [&](auto zero) {
    using T = decltype(zero);
    constexpr int n = pack_of<T>;
    const bool packed = columns % n == 0 && (rows == 1 || (c_stride % n == 0 && activated_stride % n == 0)) &&
                        aligned(args.c.data(), 16) && aligned(args.activated.data(), 16);
    run("gemm_gelu", packed ? gelu_rows<n, T> : gelu_rows<1, T>,
        {blocks_for(rows * columns, threads * (packed ? n : 1)), threads}, launch, args.c.as<const T>(),
        args.activated.as<T>(), rows, columns, c_stride, activated_stride);
  });
}

// The pass after the product: c = c f'(activated), and the sums of c's columns over the rows of each chunk. A block
// takes a chunk and 32 n columns; each warp takes every 8th row, then the warps' sums are added in order.
constexpr int lanes = 32, warps = 8;

template <class T>
struct GradientRows {
  T* c;
  const T* activated;
  std::int64_t c_stride, activated_stride, rows, columns, chunk_rows;
  float* partials;  // (chunks, columns), or null
};

template <Epilogue epilogue, int n, class T>
__global__ void __launch_bounds__(lanes* warps) gradient_rows(const GradientRows<T> p) {
  __shared__ float of_warp[warps][lanes * n];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * lanes * n;
  const std::int64_t column = first + threadIdx.x * n;
  const std::int64_t begin = blockIdx.y * p.chunk_rows;
  const std::int64_t end = begin + p.chunk_rows < p.rows ? begin + p.chunk_rows : p.rows;
  float sum[n] = {};
  if (column < p.columns) {
#pragma unroll 4
    for (std::int64_t r = begin + threadIdx.y; r < end; r += warps) {
      float x[n], activated[n];
      load<n>(p.c + r * p.c_stride + column, x);
      load<n>(p.activated + r * p.activated_stride + column, activated);
#pragma unroll
      for (int k = 0; k < n; ++k) {
        const T rounded = from_float<T>(through_activation<epilogue, T>(x[k], activated[k]));
        x[k] = to_float(rounded);
        sum[k] += x[k];
      }
      store<n>(p.c + r * p.c_stride + column, x);
    }
  }
  if (p.partials == nullptr) return;
#pragma unroll
  for (int k = 0; k < n; ++k) of_warp[threadIdx.y][threadIdx.x * n + k] = sum[k];
  __syncthreads();
  for (int j = static_cast<int>(threadIdx.y * lanes + threadIdx.x); j < lanes * n; j += lanes * warps) {
    float total = 0;
#pragma unroll
    for (int w = 0; w < warps; ++w) total += of_warp[w][j];
    if (first + j < p.columns) p.partials[blockIdx.y * p.columns + first + j] = total;
  }
}

template <Epilogue epilogue>
void gradient_pass(const GemmArgs& args, const Launch& launch) {
  const std::int64_t rows = args.c.size(0), columns = args.c.size(1);
  const RowChunks split = row_chunks(rows);
  float* partials = args.column_sums.given() ? args.scratch.as<float>() : nullptr;
  with_gpu_type(args.c.dtype(), [&](auto zero) {
    using T = decltype(zero);
    constexpr int n = pack_of<T>;
    const GradientRows<T> p{args.c.as<T>(),
                            args.activated.as<const T>(),
                            args.c.stride(0),
                            args.activated.stride(0),
                            rows,
                            columns,
                            split.rows,
                            partials};
    const bool packed = columns % n == 0 && p.c_stride % n == 0 && p.activated_stride % n == 0 && aligned(p.c, 16) &&
                        aligned(p.activated, 16);
    const dim3 blocks(blocks_for(columns, lanes * (packed ? n : 1)), static_cast<unsigned>(split.chunks));
    run(epilogue == Epilogue::relu_backward ? "gemm_relu_backward" : "gemm_gelu_backward",
        packed ? gradient_rows<epilogue, n, T> : gradient_rows<epilogue, 1, T>, {blocks, dim3(lanes, warps)}, launch,
        p);
  });
  if (partials != nullptr) add_partials({partials, split.chunks, columns, args.column_sums.as<float>()}, launch);
}

}  // namespace

void gemm(const GemmArgs& args, const Launch& launch) {
  if (args.c.count() == 0) return;
  const double operations =
      2.0 * static_cast<double>(args.c.count()) * static_cast<double>(args.a.size(args.a.rank() - 1));
  if (sm90::supports_fused(args)) {
    const MeteredRange range(launch.meter,
                             {WorkKind::product, bytes_of(args.a, args.b, args.c, args.activated), operations});
    return sm90::gemm_fused(args, launch);
  }
  {
    constexpr double speed_of_8_bits = 2;
    const MeteredRange range(launch.meter, {WorkKind::product, bytes_of(args.a, args.b, args.c, args.addend),
                                            operations, args.a_scales.given() ? speed_of_8_bits : 1});
    multiply(args, launch);
  }
  if (args.epilogue == Epilogue::bias_relu && args.a_scales.given()) {
    const ActivationArgs relu{Activation::relu, args.c, args.c};
    const MeteredRange range(launch.meter, relu.cost());
    activation(relu, launch);
  }
  if (args.epilogue == Epilogue::bias_gelu) {
    const MeteredRange range(launch.meter, {WorkKind::gelu, bytes_of(args.c, args.activated), 0});
    gelu_pass(args, launch);
  }
  if (is_backward(args.epilogue)) {
    const MeteredRange range(launch.meter, {WorkKind::gelu, bytes_of(args.c, args.c, args.activated), 0});
    if (args.epilogue == Epilogue::gelu_backward)
      gradient_pass<Epilogue::gelu_backward>(args, launch);
    else
      gradient_pass<Epilogue::relu_backward>(args, launch);
  }
}

}  // namespace longstride::kernels::cuda
