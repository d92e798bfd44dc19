#include <cuda_fp8.h>

#include <type_traits>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/quantise/fp8.h"
#include "kernels/quantise/quantise.h"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256, warps = threads / 32;

template <class T>
struct Rows {
  const T* x;
  std::uint8_t* q;
  float* scales;
  std::int64_t rows, width;
  std::int64_t row_stride, column_stride;  // strides of x
};

// The scale of a row, from the bits of its largest magnitude. The inverse of a row with an infinity or NaN is 0, and
// NaN its scale.
struct Scale {
  float scale, inverse;
  __device__ Scale(std::uint32_t largest, Dtype dtype) {
    const bool finite = !is_infinite_or_nan(largest);
    const int exponent = fp8_scale_exponent(largest, dtype);
    scale = __uint_as_float(finite ? power_of_two_bits(exponent) : 0x7FC00000u);
    inverse = finite ? __uint_as_float(power_of_two_bits(-exponent)) : 0.0f;
  }
  // Two codes. 0 if nothing of the row counts, whatever x is.
  template <Dtype dtype>
  __device__ __forceinline__ std::uint32_t codes(float x, float y) const {
    const std::uint32_t two = __nv_cvt_float2_to_fp8x2(make_float2(x * inverse, y * inverse), __NV_SATFINITE,
                                                       dtype == Dtype::e4m3 ? __NV_E4M3 : __NV_E5M2);
    return inverse == 0.0f ? 0 : two;
  }
};

__device__ __forceinline__ std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a > b ? a : b; }

__device__ __forceinline__ std::uint32_t warp_largest(std::uint32_t x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x = larger(x, __shfl_xor_sync(0xFFFFFFFFu, x, offset));
  return x;
}

// Over the block, in every thread. Call at most once per kernel.
__device__ __forceinline__ std::uint32_t block_largest(std::uint32_t x) {
  __shared__ std::uint32_t of_warp[warps];
  x = warp_largest(x);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < warps; ++w) x = larger(x, of_warp[w]);
  return x;
}

// Magnitudes of 16-bit types compare as integers, two per instruction.
__device__ __forceinline__ std::uint32_t larger_pair(std::uint32_t a, std::uint32_t pair) {
  return __vmaxu2(a, pair & 0x7FFF7FFFu);
}
// The f32 bits of the larger of two magnitudes.
template <class T>
__device__ __forceinline__ std::uint32_t bits_of_pair(std::uint32_t pair) {
  const auto largest = static_cast<unsigned short>(larger(pair & 0xFFFFu, pair >> 16));
  if constexpr (DtypeOf<T>::value == Dtype::bf16)
    return static_cast<std::uint32_t>(largest) << 16;
  else
    return __float_as_uint(__half2float(__ushort_as_half(largest)));
}

// Rows of a 16-bit type that are dense and aligned: `lanes` threads hold one in registers, each in packs of 16
// elements, of which every access reads 8 and one writes all.
constexpr int pack = 16;

template <Dtype dtype, int lanes, int packs, class T>
__global__ void __launch_bounds__(threads) quantise_rows(const Rows<T> p) {
  static_assert(lanes == 32 || lanes == threads);
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (threads / lanes) + threadIdx.x / lanes;
  if (row >= p.rows) return;  // whole warps, and no block of one row
  const T* const x = p.x + row * p.row_stride;
  Words<T, 8> words[packs][2];
  std::uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < packs; ++i) {
    const std::int64_t column = (i * lanes + lane) * pack;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      words[i][half] = column < p.width ? read<8>(x + column + 8 * half) : Words<T, 8>{};
  }
#pragma unroll
  for (int i = 0; i < packs; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (const std::uint32_t pair : words[i][half].word) largest = larger_pair(largest, pair);
  largest = bits_of_pair<T>(largest);
  largest = lanes == 32 ? warp_largest(largest) : block_largest(largest);
  const Scale scale(largest, dtype);
  if (lane == 0) p.scales[row] = scale.scale;
  std::uint8_t* const q = p.q + row * p.width;
#pragma unroll
  for (int i = 0; i < packs; ++i) {
    const std::int64_t column = (i * lanes + lane) * pack;
    if (column >= p.width) continue;
    std::uint32_t codes[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float from[8];
      unpack(words[i][half], from);
#pragma unroll
      for (int k = 0; k < 2; ++k)
        codes[2 * half + k] = scale.template codes<dtype>(from[4 * k], from[4 * k + 1]) |
                              scale.template codes<dtype>(from[4 * k + 2], from[4 * k + 3]) << 16;
    }
    *reinterpret_cast<uint4*>(q + column) = make_uint4(codes[0], codes[1], codes[2], codes[3]);
  }
}

// Rows that lie across: a block takes 32 of them, which are 32 neighbouring elements of every line in memory. It reads
// the lines twice, first for the scales and then, from the second-level cache, to turn 128 lines at a time in shared
// memory. For weights, which have few elements compared with what they multiply.
constexpr int across_threads = 512, across_rows = 32, across_lines = 128;
constexpr int across_groups = across_rows / 8;  // groups of 8 elements, which one access reads
constexpr int across_pitch = across_lines + 8;

template <Dtype dtype, class T>
__global__ void __launch_bounds__(across_threads) quantise_across(const Rows<T> p) {
  static_assert(across_threads == across_groups * across_lines && across_threads == across_rows * across_lines / 8);
  __shared__ std::uint32_t of_warp[across_threads / 32][across_groups][4];
  __shared__ float inverse_of[across_rows];
  __shared__ alignas(8) std::uint8_t turned[across_rows][across_pitch];
  const int thread = static_cast<int>(threadIdx.x), group = thread % across_groups, line = thread / across_groups;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * across_rows;
  const bool inside = first + 8 * group < p.rows;
  const T* const x = p.x + first + 8 * group;
  std::uint32_t largest[4] = {};
  if (inside)
    for (std::int64_t at = line; at < p.width; at += across_lines) {
      const Words<T, 8> words = read<8>(x + at * p.column_stride);
#pragma unroll
      for (int k = 0; k < 4; ++k) largest[k] = larger_pair(largest[k], words.word[k]);
    }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int offset = across_groups; offset < 32; offset *= 2)
      largest[k] = __vmaxu2(largest[k], __shfl_xor_sync(0xFFFFFFFFu, largest[k], offset));
    if (thread % 32 < across_groups) of_warp[thread / 32][group][k] = largest[k];
  }
  __syncthreads();
  if (thread < across_rows) {
    std::uint32_t pair = 0;
    for (int w = 0; w < across_threads / 32; ++w) pair = __vmaxu2(pair, of_warp[w][thread / 8][thread % 8 / 2]);
    const std::uint32_t one = thread % 2 == 0 ? pair & 0xFFFFu : pair >> 16;
    const Scale scale(bits_of_pair<T>(one), dtype);
    inverse_of[thread] = scale.inverse;
    if (first + thread < p.rows) p.scales[first + thread] = scale.scale;
  }
  __syncthreads();
  const int out_row = thread / (across_lines / 8), out_line = thread % (across_lines / 8) * 8;
  for (std::int64_t begin = 0; begin < p.width; begin += across_lines) {
    if (inside && begin + line < p.width) {
      float from[8];
      unpack(read<8>(x + (begin + line) * p.column_stride), from);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const float inverse = inverse_of[8 * group + k];
        turned[8 * group + k][line] = inverse == 0.0f
                                          ? 0
                                          : __nv_cvt_float_to_fp8(from[k] * inverse, __NV_SATFINITE,
                                                                  dtype == Dtype::e4m3 ? __NV_E4M3 : __NV_E5M2);
      }
    }
    __syncthreads();
    if (first + out_row < p.rows && begin + out_line < p.width)
      *reinterpret_cast<uint2*>(p.q + (first + out_row) * p.width + begin + out_line) =
          *reinterpret_cast<const uint2*>(&turned[out_row][out_line]);
    __syncthreads();
  }
}

// Any type, width, stride and alignment: a block per row, which is read twice.
template <Dtype dtype, class T>
__global__ void __launch_bounds__(threads) quantise_any(const Rows<T> p) {
  const T* const x = p.x + blockIdx.x * p.row_stride;
  std::uint32_t largest = 0;
  for (std::int64_t j = threadIdx.x; j < p.width; j += threads)
    largest = larger(largest, __float_as_uint(to_float(x[j * p.column_stride])) & 0x7FFFFFFFu);
  largest = block_largest(largest);
  const Scale scale(largest, dtype);
  if (threadIdx.x == 0) p.scales[blockIdx.x] = scale.scale;
  for (std::int64_t j = threadIdx.x; j < p.width; j += threads)
    p.q[blockIdx.x * p.width + j] =
        static_cast<std::uint8_t>(scale.template codes<dtype>(to_float(x[j * p.column_stride]), 0));
}

// ---- Host ----

// Calls f(lanes, packs) as std::integral_constants that hold a row of this width, or returns false.
template <class F>
bool with_row_shape(std::int64_t width, F&& f) {
  const auto call = [&](auto lanes, auto packs) {
    if (width > lanes * packs * pack) return false;
    f(lanes, packs);
    return true;
  };
  using std::integral_constant;
  constexpr integral_constant<int, 32> warp;
  constexpr integral_constant<int, threads> block;
  return call(warp, integral_constant<int, 1>{}) || call(warp, integral_constant<int, 2>{}) ||
         call(warp, integral_constant<int, 4>{}) || call(block, integral_constant<int, 1>{}) ||
         call(block, integral_constant<int, 2>{}) || call(block, integral_constant<int, 4>{}) ||
         call(block, integral_constant<int, 8>{});
}

template <Dtype dtype, class T>
void launch_kernel(const Rows<T>& p, const Launch& launch) {
  const bool aligned_q = p.width % 16 == 0 && aligned(p.q, 16);
  if constexpr (sizeof(T) == 2) {
    if (p.column_stride == 1 && p.row_stride % 8 == 0 && aligned(p.x, 16) && aligned_q &&
        with_row_shape(p.width, [&](auto lanes, auto packs) {
          run("quantise", quantise_rows<dtype, lanes(), packs(), T>, {blocks_for(p.rows, threads / lanes()), threads},
              launch, p);
        }))
      return;
    if (p.row_stride == 1 && p.column_stride % 8 == 0 && p.rows % 8 == 0 && aligned(p.x, 16) && aligned_q)
      return run("quantise_across", quantise_across<dtype, T>, {blocks_for(p.rows, across_rows), across_threads},
                 launch, p);
  }
  run("quantise_any", quantise_any<dtype, T>, {static_cast<unsigned>(p.rows), threads}, launch, p);
}

}  // namespace

void quantise(const QuantiseArgs& args, const Launch& launch) {
  if (args.x.count() == 0) return;
  with_gpu_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Rows<T> p{args.x.as<const T>(), args.q.as<std::uint8_t>(), args.scales.as<float>(), args.x.size(0),
                    args.x.size(1),       args.x.stride(0),          args.x.stride(1)};
    args.q.dtype() == Dtype::e4m3 ? launch_kernel<Dtype::e4m3>(p, launch) : launch_kernel<Dtype::e5m2>(p, launch);
  });
}

}  // namespace longstride::kernels::cuda
