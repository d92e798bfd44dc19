#include "kernels/base/cuda_types.cuh"
#include "kernels/base/philox.h"
#include "kernels/base/vector.cuh"
#include "kernels/gemm/gemm_rehearsal.cuh"

namespace longstride::kernels::cuda {
namespace {

constexpr int threads = 256, most_blocks = 4096;

// A vector, a matrix or a stack of matrices.
template <class T>
struct OperandElements {
  T* data;
  std::int64_t rows = 1, columns = 1, count, matrix_stride = 0, row_stride = 0, column_stride;

  explicit OperandElements(const Tensor& v) : data(v.as<T>()), count(v.count()), column_stride(v.stride(v.rank() - 1)) {
    columns = v.size(v.rank() - 1);
    if (v.rank() > 1) {
      rows = v.size(v.rank() - 2);
      row_stride = v.stride(v.rank() - 2);
    }
    if (v.rank() > 2) matrix_stride = v.stride(0);
  }
  __device__ T& operator[](std::int64_t i) const {
    const std::int64_t row = i / columns, matrix = row / rows;
    return data[matrix * matrix_stride + (row - matrix * rows) * row_stride + (i - row * columns) * column_stride];
  }
};

__device__ std::int64_t first_index() { return static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; }
__device__ std::int64_t index_stride() { return static_cast<std::int64_t>(gridDim.x) * threads; }

// Uniform in (-1, 1).
template <class T>
__global__ void __launch_bounds__(threads) fill_random(const OperandElements<T> m, std::uint32_t which) {
  for (std::int64_t i = first_index(); i < m.count; i += index_stride()) {
    const Philox4 r = philox(0, static_cast<std::uint64_t>(i), which, domain_of(Purpose::test, 0));
    m[i] = from_float<T>(static_cast<float>(static_cast<std::int32_t>(r.word[0])) * 0x1p-31f);
  }
}

// Sums every element's bits times an odd number that depends on its index; for integers the order of the additions does
// not matter.
template <class T>
__global__ void __launch_bounds__(threads) add_bits(const OperandElements<T> m, unsigned long long* total) {
  unsigned long long sum = 0;
  for (std::int64_t i = first_index(); i < m.count; i += index_stride()) {
    const float x = to_float(m[i]);
    sum += __float_as_uint(x) * ((static_cast<unsigned long long>(i) * 0x9E3779B97F4A7C15ull) | 1);
  }
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
}

unsigned blocks_of(const Tensor& v) {
  return static_cast<unsigned>(std::min<std::int64_t>(divide_up(v.count(), threads), most_blocks));
}

// Codes below 2 in magnitude of either 8-bit format: none is an infinity or not a number.
__global__ void __launch_bounds__(threads) fill_codes(const OperandElements<std::uint8_t> m, std::uint32_t which) {
  for (std::int64_t i = first_index(); i < m.count; i += index_stride()) {
    const Philox4 r = philox(0, static_cast<std::uint64_t>(i), which, domain_of(Purpose::test, 0));
    m[i] = static_cast<std::uint8_t>(r.word[0] & 0xBFu);
  }
}

__global__ void __launch_bounds__(threads) fill_ones(float* x, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += index_stride()) x[i] = 1.0f;
}

void to_ones(const Tensor& v, const Launch& launch) {
  if (v.given()) run("fill_ones", fill_ones, {blocks_of(v), threads}, launch, v.as<float>(), v.count());
}

void randomise(const Tensor& v, std::uint32_t which, const Launch& launch) {
  if (!v.given()) return;
  if (is_fp8(v.dtype()))
    return run("fill_codes", fill_codes, {blocks_of(v), threads}, launch, OperandElements<std::uint8_t>(v), which);
  with_gpu_type(v.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("fill_random", fill_random<T>, {blocks_of(v), threads}, launch, OperandElements<T>(v), which);
  });
}

}  // namespace

Rehearsal::Rehearsal(const GemmArgs& args, const Launch& launch)
    : c_(args.c), launch_(launch), bits_(static_cast<unsigned long long*>(launch.workspace)) {
  if (launch.workspace_bytes < sizeof(*bits_)) throw std::logic_error("a rehearsal without workspace");
  check(cudaEventCreate(&begin_), "cudaEventCreate");
  check(cudaEventCreate(&end_), "cudaEventCreate");
  randomise(args.a, 1, launch);
  randomise(args.b, 2, launch);
  randomise(args.bias, 3, launch);
  randomise(args.addend, 4, launch);
  to_ones(args.a_scales, launch);
  to_ones(args.b_scales, launch);
}

Rehearsal::~Rehearsal() {
  cudaEventDestroy(begin_);
  cudaEventDestroy(end_);
}

void Rehearsal::clear_result() const {
  const auto size = static_cast<std::size_t>(bytes_of(c_.dtype()));
  const int rows = c_.rank() - 2, columns = c_.rank() - 1;  // dimensions
  for (std::int64_t i = 0; i < (rows > 0 ? c_.size(0) : 1); ++i)
    check(cudaMemset2DAsync(static_cast<char*>(c_.data()) + static_cast<std::size_t>(i * c_.stride(0)) * size,
                            static_cast<std::size_t>(c_.stride(rows)) * size, 0,
                            static_cast<std::size_t>(c_.size(columns)) * size, static_cast<std::size_t>(c_.size(rows)),
                            stream_of(launch_)),
          "cudaMemset2DAsync");
}

std::uint64_t Rehearsal::result_bits() const {
  check(cudaMemsetAsync(bits_, 0, sizeof(*bits_), stream_of(launch_)), "cudaMemsetAsync");
  with_gpu_type(c_.dtype(), [&](auto zero) {
    using T = decltype(zero);
    run("add_bits", add_bits<T>, {blocks_of(c_), threads}, launch_, OperandElements<T>(c_), bits_);
  });
  unsigned long long bits = 0;
  check(cudaMemcpyAsync(&bits, bits_, sizeof(bits), cudaMemcpyDeviceToHost, stream_of(launch_)), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream_of(launch_)), "cudaStreamSynchronize");
  return bits;
}

void Rehearsal::begin() const { check(cudaEventRecord(begin_, stream_of(launch_)), "cudaEventRecord"); }

float Rehearsal::end() const {
  check(cudaEventRecord(end_, stream_of(launch_)), "cudaEventRecord");
  check(cudaEventSynchronize(end_), "cudaEventSynchronize");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
  return ms;
}

}  // namespace longstride::kernels::cuda
