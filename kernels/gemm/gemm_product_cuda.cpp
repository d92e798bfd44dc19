#include "kernels/gemm/gemm_product.cuh"

#include <cublasLt.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/gemm/gemm_panels_sm90.h"
#include "kernels/gemm/gemm_rehearsal.cuh"

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
    case Dtype::e4m3:
      return CUDA_R_8F_E4M3;
    case Dtype::e5m2:
      return CUDA_R_8F_E5M2;
    default:
      throw std::logic_error(std::string("CUDA has no matrix product of ") + name_of(dtype));
  }
}

// One operand as cuBLASLt sees it: column-major. A row-major c = a b is the column-major c^T = b^T a^T, so b comes
// first, rows and columns are exchanged, and row-major storage needs no transposition.
struct Operand {
  std::int64_t leading;
  bool transposed;
  unsigned alignment;   // bytes, shared by all matrices
  std::int64_t matrix;  // from one matrix of a stack to the next, in elements

  auto key() const { return std::tuple(leading, transposed, alignment, matrix); }
};

// The largest power of two, at most 256, that divides every address at this offset from a multiple of 256.
unsigned alignment_of(std::uintptr_t bytes) {
  return bytes == 0 ? 256 : static_cast<unsigned>(std::min<std::uintptr_t>(bytes & (~bytes + 1), 256));
}

Operand operand(const Tensor& v) {
  const int rows = v.rank() - 2, columns = v.rank() - 1;  // dimensions
  const bool transposed = v.stride(columns) != 1 && v.size(columns) != 1;
  // The stride of a matrix with one stored row is arbitrary, but the library requires at least the row's length.
  const std::int64_t leading = transposed ? v.stride(columns) : v.stride(rows);
  const std::int64_t matrix = v.rank() > 2 ? v.stride(0) : 0;
  const auto address = reinterpret_cast<std::uintptr_t>(v.data());
  const unsigned alignment =
      std::min(alignment_of(address), alignment_of(static_cast<std::uintptr_t>(matrix) * bytes_of(v.dtype())));
  return {std::max(leading, transposed ? v.size(rows) : v.size(columns)), transposed, alignment, matrix};
}

// Everything that the choice of an algorithm depends on.
struct Product {
  std::int64_t matrices, rows, columns, depth;
  Operand a, b, c, added;  // `added` is c itself, the addend, or nothing
  Dtype a_type, b_type, out;
  bool bias, relu, adds, scaled;
  std::size_t workspace;
  int device;

  auto key() const {
    return std::tuple(matrices, rows, columns, depth, a.key(), b.key(), c.key(), added.key(), a_type, b_type, out, bias,
                      relu, adds, scaled, workspace, device);
  }
  bool operator<(const Product& other) const { return key() < other.key(); }
};

struct Description {
  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t first, second, added, result;

  Description(const Product& p, const GemmArgs& args) {
    check_lt(cublasLtMatmulDescInit(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescInit");
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias.data());
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.out));
    }
    if (p.scaled) {  // fast accumulation, which is off by default, would keep sums at fewer bits than the result has
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, args.b_scales.data());
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, args.a_scales.data());
    }
    lay_out(first, p.b_type, p.columns, p.depth, p.b, p.matrices);
    lay_out(second, p.a_type, p.depth, p.rows, p.a, p.matrices);
    lay_out(added, p.out, p.columns, p.rows, p.added, p.matrices);
    lay_out(result, p.out, p.columns, p.rows, p.c, p.matrices);
  }

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check_lt(cublasLtMatmulDescSetAttribute(&product, attribute, &value, sizeof(value)),
             "cublasLtMatmulDescSetAttribute");
  }
  static void lay_out(cublasLtMatrixLayoutOpaque_t& layout, Dtype dtype, std::int64_t rows, std::int64_t columns,
                      const Operand& m, std::int64_t matrices) {
    if (m.transposed) std::swap(rows, columns);
    check_lt(cublasLtMatrixLayoutInit(&layout, type_of(dtype), static_cast<std::uint64_t>(rows),
                                      static_cast<std::uint64_t>(columns), m.leading),
             "cublasLtMatrixLayoutInit");
    if (matrices == 1) return;
    set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(matrices));
    set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m.matrix);
  }
  template <class Value>
  static void set(cublasLtMatrixLayoutOpaque_t& layout, cublasLtMatrixLayoutAttribute_t attribute, Value value) {
    check_lt(cublasLtMatrixLayoutSetAttribute(&layout, attribute, &value, sizeof(value)),
             "cublasLtMatrixLayoutSetAttribute");
  }
};

using Algorithm = cublasLtMatmulAlgo_t;

// One of the library's algorithms, our own kernel, or neither.
struct Choice {
  bool known = false, rehearsed = false, by_panels = false, possible = true;
  Algorithm algorithm = {};
};
Choice impossible(bool rehearsed) { return {true, rehearsed, false, false, {}}; }

bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
}

// At most `most` algorithms, the heuristic's first choice first; none if the library does not support the product. Only
// algorithms without reductions, or with f32 reductions through the workspace, so that results are deterministic.
std::vector<Algorithm> candidates(cublasLtHandle_t handle, const Product& p, Description& d, int most) {
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
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.added.alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.c.alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most));
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, &d.product, &d.first, &d.second, &d.added,
                                                               &d.result, &preference, most, found.data(), &count);
  if (is_refusal(status)) return {};
  check_lt(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<Algorithm> algorithms;
  for (int i = 0; i < count; ++i)
    if (found[static_cast<std::size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
      algorithms.push_back(found[static_cast<std::size_t>(i)].algo);
  return algorithms;
}

cublasStatus_t call(cublasLtHandle_t handle, Description& d, const Algorithm& algorithm, const GemmArgs& args,
                    const Launch& launch) {
  const float one = 1, beta = args.accumulate || args.addend.given() ? 1 : 0;
  const void* added = args.addend.given() ? args.addend.data() : args.c.data();
  return cublasLtMatmul(handle, &d.product, &one, args.b.data(), &d.first, args.a.data(), &d.second, &beta, added,
                        &d.added, args.c.data(), &d.result, &algorithm, launch.workspace, launch.workspace_bytes,
                        stream_of(launch));
}

// The fastest algorithm, our own kernel among them, that gives the same bits as the first choice on random operands.
// Timings differ from process to process, but this way they change no result: between runs, between ranks, or compared
// with no rehearsal.
Choice fastest(cublasLtHandle_t handle, const Product& p, Description& d, const GemmArgs& args, const Launch& launch) {
  constexpr int most = 16, repeats = 5;
  Rehearsal rehearsal(args, launch);
  std::vector<Choice> all;
  for (const Algorithm& one : candidates(handle, p, d, most)) all.push_back({true, true, false, true, one});
  if (sm90::supports_panels(args)) all.push_back({true, true, true, true, {}});
  if (all.empty()) return impossible(true);
  std::uint64_t wanted = 0;
  float least = 0;
  const Choice* best = &all.front();
  for (const Choice& one : all) {
    const auto multiply = [&] {
      if (!one.by_panels) return call(handle, d, one.algorithm, args, launch);
      sm90::gemm_panels(args, launch);
      return CUBLAS_STATUS_SUCCESS;
    };
    rehearsal.clear_result();
    if (multiply() != CUBLAS_STATUS_SUCCESS) {
      if (&one == &all.front() && p.scaled) return impossible(true);
      continue;
    }
    const std::uint64_t bits = rehearsal.result_bits();
    if (&one == &all.front()) wanted = bits;
    if (bits != wanted) continue;
    const float ms = rehearsal.least_ms(repeats, [&] { check_lt(multiply(), "cublasLtMatmul"); });
    if (&one != &all.front() && ms >= least) continue;
    least = ms;
    best = &one;
  }
  return *best;
}

// One library handle per device, and the algorithms chosen so far. The handle lives as long as the process: the driver
// may already be gone when static objects are destroyed.
class Library {
 public:
  static Library& instance() {
    static Library* library = new Library;
    return *library;
  }

  std::pair<cublasLtHandle_t, Choice> algorithm(const Product& p, Description& d, const GemmArgs& args,
                                                const Launch& launch) {
    std::lock_guard lock(mutex_);
    cublasLtHandle_t& handle = handles_[p.device];
    if (handle == nullptr) check_lt(cublasLtCreate(&handle), "cublasLtCreate");
    Choice& choice = chosen_[p];
    if (!choice.known || (launch.rehearsal && !choice.rehearsed))
      choice = launch.rehearsal ? fastest(handle, p, d, args, launch) : first(handle, p, d);
    return {handle, choice};
  }
  void refuse(const Product& p) {
    std::lock_guard lock(mutex_);
    chosen_[p] = impossible(true);
  }

 private:
  static Choice first(cublasLtHandle_t handle, const Product& p, Description& d) {
    const std::vector<Algorithm> found = candidates(handle, p, d, 1);
    return found.empty() ? impossible(false) : Choice{true, false, false, true, found.front()};
  }

  std::mutex mutex_;
  std::map<int, cublasLtHandle_t> handles_;
  std::map<Product, Choice> chosen_;
};

Product product_of(const GemmArgs& args, const Launch& launch) {
  const int rows = args.c.rank() - 2, columns = args.c.rank() - 1;  // dimensions
  Product p{rows > 0 ? args.c.size(0) : 1,
            args.c.size(rows),
            args.c.size(columns),
            args.a.size(columns),
            operand(args.a),
            operand(args.b),
            operand(args.c),
            operand(args.addend.given() ? args.addend : args.c),
            args.a.dtype(),
            args.b.dtype(),
            args.c.dtype(),
            adds_bias(args.epilogue),
            args.epilogue == Epilogue::bias_relu && !args.a_scales.given(),
            args.accumulate || args.addend.given(),
            args.a_scales.given(),
            launch.workspace_bytes,
            0};
  check(cudaGetDevice(&p.device), "cudaGetDevice");
  return p;
}

}  // namespace

bool multiply_in_library(const GemmArgs& args, const Launch& launch) {
  const Product p = product_of(args, launch);
  Description d(p, args);
  const auto [handle, choice] = Library::instance().algorithm(p, d, args, launch);
  if (!choice.possible) return false;
  if (choice.by_panels) {
    sm90::gemm_panels(args, launch);
    return true;
  }
  nvtxRangePushA("gemm");
  const cublasStatus_t status = call(handle, d, choice.algorithm, args, launch);
  nvtxRangePop();
  if (p.scaled && is_refusal(status)) {  // some scales are refused only here
    Library::instance().refuse(p);
    return false;
  }
  check_lt(status, "cublasLtMatmul");
  return true;
}

void multiply(const GemmArgs& args, const Launch& launch) {
  if (multiply_in_library(args, launch)) return;
  if (args.a_scales.given() && multiply_in_library({.a = args.a, .b = args.b, .c = args.c}, launch))
    return scale_product(args, launch);
  throw std::runtime_error("cuBLASLt has no algorithm for a matrix product");
}

}  // namespace longstride::kernels::cuda
