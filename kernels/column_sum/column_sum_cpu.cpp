#include "kernels/column_sum/column_sum.h"

#include "kernels/base/add_partials.h"
#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {

void ColumnSumArgs::check(Device device) const {
  check_computes(device, x, "x");
  check_rows(x, {x.size(0), x.size(1)}, x.dtype(), "x");
  check_vector(total, x.size(1), exact_type(device, x.dtype()), "total");
}

namespace cpu {
namespace {

template <class T>
void run(const ColumnSumArgs& args) {
  const std::int64_t rows = args.x.size(0), columns = args.x.size(1), stride = args.x.stride(0);
  const T* x = args.x.as<const T>();
  T* partials = args.scratch.as<T>();
  const RowChunks split = row_chunks(rows);
#pragma omp parallel if (rows * columns > 16384)
  {
#pragma omp for schedule(static) nowait
    for (std::int64_t chunk = 0; chunk < split.chunks; ++chunk) {
      T* sum = partials + chunk * columns;
      std::fill_n(sum, columns, T(0));
      const std::int64_t end = std::min(rows, (chunk + 1) * split.rows);
      for (std::int64_t r = chunk * split.rows; r < end; ++r) {
        const T* row = x + r * stride;
#pragma omp simd
        for (std::int64_t j = 0; j < columns; ++j) sum[j] += row[j];
      }
    }
    add_partials(partials, split.chunks, columns, columns, args.total.as<T>());
  }
}

}  // namespace

void column_sum(const ColumnSumArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) { run<decltype(zero)>(args); });
}

}  // namespace cpu
}  // namespace longstride::kernels
