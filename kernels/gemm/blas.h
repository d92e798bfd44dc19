// Single-threaded matrix products from OpenBLAS. The kernels split the work over OpenMP threads themselves, so that
// every variant of OpenBLAS (serial, pthreads, OpenMP) behaves the same and the result does not depend on the number of
// threads.
#pragma once
#include <cstddef>
#include <cstdint>

namespace longstride::kernels::cpu {

// A row-major matrix, or the transpose of one.
template <class T>
struct BlasMatrix {
  T* data;
  std::int64_t leading;  // elements from one stored row to the next
  bool transposed = false;
};

// c (rows, columns) = a (rows, depth) b (depth, columns), plus the previous c if `accumulate`. c is not transposed.
template <class T>
void multiply(std::int64_t rows, std::int64_t columns, std::int64_t depth, const BlasMatrix<const T>& a,
              const BlasMatrix<const T>& b, bool accumulate, const BlasMatrix<T>& c);

// True if the process may still take the buffers in which OpenBLAS packs matrices, one for each thread that multiplies.
// Under a limit on address space that is too low, OpenBLAS would ask for one again and again without end.
bool room_for_products(int threads);
std::size_t product_buffers(int threads);  // bytes of these buffers

// OpenBLAS chooses a set of kernels while it is loaded, and takes a processor that is newer than itself for one of
// 2004, whose kernels are a third as fast. Then this is the value of OPENBLAS_CORETYPE for a better set, otherwise
// null.
const char* better_blas_core();

}  // namespace longstride::kernels::cpu
