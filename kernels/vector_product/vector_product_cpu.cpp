#include "kernels/vector_product/vector_product.h"

#include <algorithm>

#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {

void VectorProductArgs::check(Device device) const {
  check_computes(device, matrix, "matrix");
  check_rows(matrix, {matrix.size(0), matrix.size(1)}, matrix.dtype(), "matrix");
  const Dtype exact = exact_type(device, matrix.dtype());
  check_vector(x, matrix.size(0), exact, "x");
  check_vector(y, matrix.size(1), exact, "y");
}

namespace cpu {
namespace {

// Every element adds the rows in order, so the cut into columns changes no bit.
template <class T>
void run(const VectorProductArgs& args) {
  constexpr std::int64_t width = 128;
  const std::int64_t rows = args.matrix.size(0), columns = args.matrix.size(1), stride = args.matrix.stride(0);
  const T *x = args.x.as<const T>(), *matrix = args.matrix.as<const T>();
  T* y = args.y.as<T>();
#pragma omp parallel for schedule(static) if (rows * columns > 16384)
  for (std::int64_t begin = 0; begin < columns; begin += width) {
    const std::int64_t end = std::min(columns, begin + width);
    std::fill(y + begin, y + end, T(0));
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* row = matrix + r * stride;
      const T factor = x[r];
#pragma omp simd
      for (std::int64_t j = begin; j < end; ++j) y[j] += factor * row[j];
    }
  }
}

}  // namespace

void vector_product(const VectorProductArgs& args, const Launch&) {
  with_float_type(args.matrix.dtype(), [&](auto zero) { run<decltype(zero)>(args); });
}

}  // namespace cpu
}  // namespace longstride::kernels
