#include <cublasLt.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "kernels/base/activation.cuh"
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

constexpr int threads = 256;

// The pass after the product: activated = gelu(c), or c = c gelu'(activated).
template <int n, class T>
__global__ void __launch_bounds__(threads)
    finish_kernel(T* c, T* activated, std::int64_t rows, std::int64_t columns, std::int64_t c_stride,
                  std::int64_t activated_stride, bool backward) {
  const std::int64_t packs = columns / n, i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= rows * packs) return;
  // Almost always the rows touch and there is nothing to divide.
  const std::int64_t row = rows == 1 ? 0 : i / packs, column = (i - row * packs) * n;
  T* at_c = c + row * c_stride + column;
  T* at_activated = activated + row * activated_stride + column;
  float x[n];
  if (backward) {
    float slope[n];
    load<n>(at_c, x);
    load<n>(at_activated, slope);
#pragma unroll
    for (int k = 0; k < n; ++k) x[k] *= gelu_slope_of<T>(slope[k]);
    store<n>(at_c, x);
  } else {
    load<n>(at_c, x);
#pragma unroll
    for (int k = 0; k < n; ++k) x[k] = gelu_of<T>(x[k]);
    store<n>(at_activated, x);
  }
}

void finish(const GemmArgs& args, const Launch& launch) {
  const bool backward = args.epilogue == Epilogue::gelu_backward;
  std::int64_t rows = args.c.size[0], columns = args.c.size[1];
  const std::int64_t c_stride = args.c.stride[0], activated_stride = args.activated.stride[0];
  if (c_stride == columns && activated_stride == columns) {
    columns *= rows;
    rows = 1;
  }
  with_gpu_type(args.c.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int n = pack_of<T>;
    const bool packed = columns % n == 0 && (rows == 1 || (c_stride % n == 0 && activated_stride % n == 0)) &&
                        aligned(args.c.data, 16) && aligned(args.activated.data, 16);
    run(backward ? "gemm_gelu_backward" : "gemm_gelu", packed ? finish_kernel<n, T> : finish_kernel<1, T>,
        {blocks_for(rows * columns, threads * (packed ? n : 1)), threads}, launch, args.c.as<T>(),
        args.activated.as<T>(), rows, columns, c_stride, activated_stride, backward);
  });
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
  if (args.epilogue == Epilogue::bias_gelu || args.epilogue == Epilogue::gelu_backward) finish(args, launch);
}

}  // namespace longstride::kernels::cuda
