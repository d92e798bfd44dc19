#include <cublasLt.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "kernels/base/activation.cuh"
#include "kernels/base/add_partials.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/vector.cuh"
#include "kernels/gemm.h"

namespace longstride::kernels::cuda {
namespace {

void check_lt(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(what) + ": " + cublasLtGetStatusString(status));
}

cudaDataType_t type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return CUDA_R_32F;
    case Dtype::bf16:
      return CUDA_R_16BF;
    case Dtype::f16:
      return CUDA_R_16F;
    default:
      throw std::logic_error(std::string("no CUDA product of ") + name_of(dtype));
  }
}

// One operand as cuBLASLt sees it: column-major. A row-major c = a b is the column-major c^T = b^T a^T, so b comes
// first, rows and columns change places, and what is stored row by row needs no transposition.
struct Operand {
  std::int64_t leading;
  bool transposed;
  unsigned alignment;  // of the pointer, in bytes

  auto key() const { return std::tuple(leading, transposed, alignment); }
};

unsigned alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  return static_cast<unsigned>(std::min<std::uintptr_t>(address & (~address + 1), 256));
}

Operand operand(const View& v) {
  const bool transposed = v.stride[1] != 1 && v.size[1] != 1;
  // Of a matrix with one stored row the stride is free, but the library wants at least the row's length.
  const std::int64_t leading = transposed ? v.stride[1] : v.stride[0];
  return {std::max(leading, transposed ? v.size[0] : v.size[1]), transposed, alignment_of(v.data)};
}

// All that the choice of an algorithm depends on.
struct Product {
  std::int64_t rows, columns, depth;
  Operand a, b, c;
  Dtype in, out;
  bool bias, accumulate;
  std::size_t workspace;
  int device;

  auto key() const {
    return std::tuple(rows, columns, depth, a.key(), b.key(), c.key(), in, out, bias, accumulate, workspace, device);
  }
  bool operator<(const Product& other) const { return key() < other.key(); }
};

struct Description {
  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t first, second, result;

  Description(const Product& p, const void* bias) {
    check_lt(cublasLtMatmulDescInit(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescInit");
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.out));
    }
    lay_out(first, p.in, p.columns, p.depth, p.b);
    lay_out(second, p.in, p.depth, p.rows, p.a);
    lay_out(result, p.out, p.columns, p.rows, p.c);
  }

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check_lt(cublasLtMatmulDescSetAttribute(&product, attribute, &value, sizeof(value)),
             "cublasLtMatmulDescSetAttribute");
  }
  static void lay_out(cublasLtMatrixLayoutOpaque_t& layout, Dtype dtype, std::int64_t rows, std::int64_t columns,
                      const Operand& m) {
    if (m.transposed) std::swap(rows, columns);
    check_lt(cublasLtMatrixLayoutInit(&layout, type_of(dtype), static_cast<std::uint64_t>(rows),
                                      static_cast<std::uint64_t>(columns), m.leading),
             "cublasLtMatrixLayoutInit");
  }
};

// The heuristic's first choice. Only reductions in f32 through the workspace, or none: the same bits every time.
cublasLtMatmulAlgo_t choose(cublasLtHandle_t handle, const Product& p, const Description& d) {
  cublasLtMatmulPreferenceOpaque_t preference;
  check_lt(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check_lt(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
             "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, p.workspace);
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.b.alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.a.alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.c.alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.c.alignment);
  cublasLtMatmulHeuristicResult_t found = {};
  int count = 0;
  Description local = d;
  check_lt(cublasLtMatmulAlgoGetHeuristic(handle, &local.product, &local.first, &local.second, &local.result,
                                          &local.result, &preference, 1, &found, &count),
           "cublasLtMatmulAlgoGetHeuristic");
  if (count == 0) throw std::runtime_error("cuBLASLt has no algorithm for a matrix product");
  return found.algo;
}

// One library handle a device, and the algorithms chosen so far. The handle lives as long as the process: the driver
// may already be gone when static objects are destroyed.
class Library {
 public:
  static Library& instance() {
    static Library* library = new Library;
    return *library;
  }

  std::pair<cublasLtHandle_t, cublasLtMatmulAlgo_t> algorithm(const Product& p, const Description& d) {
    std::lock_guard lock(mutex_);
    cublasLtHandle_t& handle = handles_[p.device];
    if (handle == nullptr) check_lt(cublasLtCreate(&handle), "cublasLtCreate");
    const auto known = chosen_.find(p);
    if (known != chosen_.end()) return {handle, known->second};
    return {handle, chosen_.emplace(p, choose(handle, p, d)).first->second};
  }

 private:
  std::mutex mutex_;
  std::map<int, cublasLtHandle_t> handles_;
  std::map<Product, cublasLtMatmulAlgo_t> chosen_;
};

void multiply(const GemmArgs& args, const Launch& launch) {
  const bool bias = args.epilogue == Epilogue::bias || args.epilogue == Epilogue::bias_gelu;
  Product p{args.c.size[0], args.c.size[1], args.a.size[1], operand(args.a), operand(args.b),        operand(args.c),
            args.a.dtype,   args.c.dtype,   bias,           args.accumulate, launch.workspace_bytes, 0};
  check(cudaGetDevice(&p.device), "cudaGetDevice");
  Description d(p, args.bias.data);
  const auto [handle, algorithm] = Library::instance().algorithm(p, d);
  const float one = 1, beta = args.accumulate ? 1 : 0;
  check_lt(cublasLtMatmul(handle, &d.product, &one, args.b.data, &d.first, args.a.data, &d.second, &beta, args.c.data,
                          &d.result, args.c.data, &d.result, &algorithm, launch.workspace, launch.workspace_bytes,
                          stream_of(launch)),
           "cublasLtMatmul");
}

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
  std::int64_t rows = args.c.size[0], columns = args.c.size[1];
  const std::int64_t c_stride = args.c.stride[0], activated_stride = args.activated.stride[0];
  if (c_stride == columns && activated_stride == columns) {  // one long row: nothing to divide
    columns *= rows;
    rows = 1;
  }
  with_gpu_type(args.c.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int n = pack_of<T>;
    const bool packed = columns % n == 0 && (rows == 1 || (c_stride % n == 0 && activated_stride % n == 0)) &&
                        aligned(args.c.data, 16) && aligned(args.activated.data, 16);
    run("gemm_gelu", packed ? gelu_rows<n, T> : gelu_rows<1, T>,
        {blocks_for(rows * columns, threads * (packed ? n : 1)), threads}, launch, args.c.as<const T>(),
        args.activated.as<T>(), rows, columns, c_stride, activated_stride);
  });
}

// The pass after the product: c = c gelu'(input), and the sums of c's columns over the rows of each chunk. A block
// takes a chunk and 32 n columns; each warp takes every 8th row, then the warps' sums are added in order.
constexpr int lanes = 32, warps = 8;

template <class T>
struct Rows {
  T* c;
  const T* input;
  std::int64_t c_stride, input_stride, rows, columns, chunk_rows;
  float* partials;  // (chunks, columns), or null
};

template <int n, class T>
__global__ void __launch_bounds__(lanes* warps) gelu_backward_rows(const Rows<T> p) {
  __shared__ float of_warp[warps][lanes * n];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * lanes * n;
  const std::int64_t column = first + threadIdx.x * n;
  const std::int64_t begin = blockIdx.y * p.chunk_rows;
  const std::int64_t end = begin + p.chunk_rows < p.rows ? begin + p.chunk_rows : p.rows;
  float sum[n] = {};
  if (column < p.columns) {
#pragma unroll 4
    for (std::int64_t r = begin + threadIdx.y; r < end; r += warps) {
      float x[n], input[n];
      load<n>(p.c + r * p.c_stride + column, x);
      load<n>(p.input + r * p.input_stride + column, input);
#pragma unroll
      for (int k = 0; k < n; ++k) {
        const T rounded = from_float<T>(x[k] * gelu_slope_of<T>(input[k]));
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

void gelu_backward_pass(const GemmArgs& args, const Launch& launch) {
  const std::int64_t rows = args.c.size[0], columns = args.c.size[1];
  const RowChunks split = row_chunks(rows);
  float* partials = args.column_sums.given() ? args.partials.as<float>() : nullptr;
  with_gpu_type(args.c.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int n = pack_of<T>;
    const Rows<T> p{args.c.as<T>(),
                    args.activated.as<const T>(),
                    args.c.stride[0],
                    args.activated.stride[0],
                    rows,
                    columns,
                    split.rows,
                    partials};
    const bool packed =
        columns % n == 0 && p.c_stride % n == 0 && p.input_stride % n == 0 && aligned(p.c, 16) && aligned(p.input, 16);
    const dim3 blocks(blocks_for(columns, lanes * (packed ? n : 1)), static_cast<unsigned>(split.chunks));
    run("gemm_gelu_backward", packed ? gelu_backward_rows<n, T> : gelu_backward_rows<1, T>,
        {blocks, dim3(lanes, warps)}, launch, p);
  });
  if (partials != nullptr) add_partials({partials, split.chunks, columns, args.column_sums.as<float>()}, launch);
}

}  // namespace

void gemm(const GemmArgs& args, const Launch& launch) {
  if (args.c.count() == 0) return;
  nvtxRangePushA("gemm");
  try {
    multiply(args, launch);
  } catch (...) {
    nvtxRangePop();
    throw;
  }
  nvtxRangePop();
  if (args.epilogue == Epilogue::bias_gelu) gelu_pass(args, launch);
  if (args.epilogue == Epilogue::gelu_backward) gelu_backward_pass(args, launch);
}

}  // namespace longstride::kernels::cuda
