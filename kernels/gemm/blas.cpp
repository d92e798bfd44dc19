#include "kernels/gemm/blas.h"

#include <cblas.h>
#include <sys/mman.h>

#include <cstdlib>
#include <string_view>

namespace longstride::kernels::cpu {
namespace {

// Runs before main, while no thread is inside OpenBLAS.
const bool single_threaded = [] {
  openblas_set_num_threads(1);
  return true;
}();

CBLAS_TRANSPOSE flag(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

}  // namespace

template <>
void multiply(std::int64_t rows, std::int64_t columns, std::int64_t depth, const BlasMatrix<const float>& a,
              const BlasMatrix<const float>& b, bool accumulate, const BlasMatrix<float>& c) {
  cblas_sgemm(CblasRowMajor, flag(a.transposed), flag(b.transposed), static_cast<blasint>(rows),
              static_cast<blasint>(columns), static_cast<blasint>(depth), 1.0f, a.data, static_cast<blasint>(a.leading),
              b.data, static_cast<blasint>(b.leading), accumulate ? 1.0f : 0.0f, c.data,
              static_cast<blasint>(c.leading));
}

template <>
void multiply(std::int64_t rows, std::int64_t columns, std::int64_t depth, const BlasMatrix<const double>& a,
              const BlasMatrix<const double>& b, bool accumulate, const BlasMatrix<double>& c) {
  cblas_dgemm(CblasRowMajor, flag(a.transposed), flag(b.transposed), static_cast<blasint>(rows),
              static_cast<blasint>(columns), static_cast<blasint>(depth), 1.0, a.data, static_cast<blasint>(a.leading),
              b.data, static_cast<blasint>(b.leading), accumulate ? 1.0 : 0.0, c.data, static_cast<blasint>(c.leading));
}

std::size_t product_buffers(int threads) {
  constexpr std::size_t buffer = std::size_t{129} << 20;  // OpenBLAS takes 128 MiB on x86-64, and aligns it
  return buffer * static_cast<std::size_t>(threads);
}

bool room_for_products(int threads) {
  const std::size_t bytes = product_buffers(threads);
  void* const room = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return false;
  ::munmap(room, bytes);
  return true;
}

const char* better_blas_core() {
#ifdef __x86_64__
  if (std::getenv("OPENBLAS_CORETYPE") != nullptr || std::string_view(openblas_get_corename()) != "Prescott")
    return nullptr;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return nullptr;
}

}  // namespace longstride::kernels::cpu
