#include "kernels/base/blas.h"

#include <cblas.h>

#include <cstdlib>
#include <cstring>

// OpenBLAS's own choice of kernels, which builds for one processor only do not have.
extern "C" void gotoblas_dynamic_init() __attribute__((weak));
extern "C" void gotoblas_dynamic_quit() __attribute__((weak));

namespace longstride::kernels::cpu {
namespace {

bool has_avx512() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

// OpenBLAS 0.3.21 (Debian 12) takes processors newer than itself for a Haswell and leaves their AVX-512 units, half of
// their speed, unused. Choosing again under OPENBLAS_CORETYPE corrects it; a choice of the user's stands.
void choose_core() {
  if (std::getenv("OPENBLAS_CORETYPE") != nullptr) return;
  if (gotoblas_dynamic_init == nullptr || gotoblas_dynamic_quit == nullptr || !has_avx512()) return;
  if (std::strcmp(openblas_get_corename(), "Haswell") != 0 && std::strcmp(openblas_get_corename(), "Zen") != 0) return;
  setenv("OPENBLAS_CORETYPE", "SkylakeX", 1);
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
  unsetenv("OPENBLAS_CORETYPE");
}

// Done before main: the environment may change only while there are no other threads to read it.
const bool prepared = [] {
  choose_core();
  openblas_set_num_threads(1);
  return true;
}();

CBLAS_TRANSPOSE flag(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

}  // namespace

template <>
void multiply(std::int64_t rows, std::int64_t columns, std::int64_t depth, const Matrix<const float>& a,
              const Matrix<const float>& b, bool accumulate, const Matrix<float>& c) {
  cblas_sgemm(CblasRowMajor, flag(a.transposed), flag(b.transposed), static_cast<blasint>(rows),
              static_cast<blasint>(columns), static_cast<blasint>(depth), 1.0f, a.data, static_cast<blasint>(a.leading),
              b.data, static_cast<blasint>(b.leading), accumulate ? 1.0f : 0.0f, c.data,
              static_cast<blasint>(c.leading));
}

template <>
void multiply(std::int64_t rows, std::int64_t columns, std::int64_t depth, const Matrix<const double>& a,
              const Matrix<const double>& b, bool accumulate, const Matrix<double>& c) {
  cblas_dgemm(CblasRowMajor, flag(a.transposed), flag(b.transposed), static_cast<blasint>(rows),
              static_cast<blasint>(columns), static_cast<blasint>(depth), 1.0, a.data, static_cast<blasint>(a.leading),
              b.data, static_cast<blasint>(b.leading), accumulate ? 1.0 : 0.0, c.data, static_cast<blasint>(c.leading));
}

const char* blas_core() { return openblas_get_corename(); }

}  // namespace longstride::kernels::cpu
