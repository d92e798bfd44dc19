#include <algorithm>
#include <vector>

#include "kernels/base/tensor_checks.h"
#include "kernels/column_sum/column_sum.h"
#include "kernels/gemm/activation.h"
#include "kernels/gemm/blas.h"
#include "kernels/gemm/gemm.h"
#include "kernels/quantise/fp8.h"

namespace longstride::kernels {

namespace {

bool dense_in(const Tensor& t, int d) { return t.size(d) == 1 || t.stride(d) == 1; }

void check_types(const GemmArgs& args, Device device) {
  const Tensor &a = args.a, &b = args.b, &c = args.c;
  if (!args.a_scales.given() && !args.b_scales.given()) {
    LONGSTRIDE_CHECK(computes(device, a.dtype()) && b.dtype() == a.dtype() && goes_with(device, a.dtype(), c.dtype()),
                     "a is {}, b {}, c {}", name_of(a.dtype()), name_of(b.dtype()), name_of(c.dtype()));
    return;
  }
  const bool both_e5m2 = a.dtype() == Dtype::e5m2 && b.dtype() == Dtype::e5m2;
  LONGSTRIDE_CHECK(is_fp8(a.dtype()) && is_fp8(b.dtype()) && !both_e5m2 && computes(device, c.dtype()) &&
                       (device == Device::cpu || c.dtype() == Dtype::bf16),
                   "with scales a is {}, b {}, c {}", name_of(a.dtype()), name_of(b.dtype()), name_of(c.dtype()));
  LONGSTRIDE_CHECK(c.rank() == 2 && !args.accumulate, "scales cannot be combined with accumulate or a stack");
  LONGSTRIDE_CHECK(dense_in(a, 1) && dense_in(b, 0), "a {} or b {} is not dense along the depth", a.shape().text(),
                   b.shape().text());
  LONGSTRIDE_CHECK(args.epilogue != Epilogue::bias_relu || c.contiguous(), "c {} is not contiguous", c.shape().text());
  check_vector(args.a_scales, c.size(0), Dtype::f32, "a_scales");
  check_vector(args.b_scales, c.size(1), Dtype::f32, "b_scales");
}

}  // namespace

void GemmArgs::check(Device device) const {
  const auto matrix = [&](const Tensor& t) {
    return t.rank() == c.rank() && (c.rank() == 2 || (c.rank() == 3 && t.size(0) == c.size(0)));
  };
  LONGSTRIDE_CHECK(matrix(a) && matrix(b) && matrix(c) && a.size(-2) == c.size(-2) && a.size(-1) == b.size(-2) &&
                       b.size(-1) == c.size(-1),
                   "a {}, b {} and c {} do not match", a.shape().text(), b.shape().text(), c.shape().text());
  check_types(*this, device);
  LONGSTRIDE_CHECK((dense_in(a, -1) || dense_in(a, -2)) && (dense_in(b, -1) || dense_in(b, -2)) && dense_in(c, -1),
                   "a {}, b {} or c {} has no dense dimension", a.shape().text(), b.shape().text(), c.shape().text());
  LONGSTRIDE_CHECK(epilogue == Epilogue::none || (c.rank() == 2 && !accumulate),
                   "an epilogue cannot be combined with accumulate or a stack");
  if (addend.given()) {
    LONGSTRIDE_CHECK((epilogue == Epilogue::none || epilogue == Epilogue::bias) && c.rank() == 2 && !accumulate,
                     "an addend cannot be combined with an activation, accumulate or a stack");
    check_rows(addend, c.shape(), c.dtype(), "addend");
    LONGSTRIDE_CHECK(c.data() == nullptr || addend.data() != c.data(), "an addend may not be c");
  }
  if (adds_bias(epilogue)) check_vector(bias, c.size(1), c.dtype(), "bias");
  if (epilogue == Epilogue::bias_gelu || is_backward(epilogue))
    check_rows(activated, c.shape(), c.dtype(), "activated");
  if (!is_backward(epilogue)) return;
  LONGSTRIDE_CHECK(c.data() == nullptr || activated.data() != c.data(), "what was activated may not be c");
  if (column_sums.given()) check_vector(column_sums, c.size(1), exact_type(device, c.dtype()), "column_sums");
}

namespace cpu {
namespace {

// How c is cut into blocks. Depends only on the shape, so that the result does not depend on the number of threads.
struct Blocks {
  std::int64_t rows, columns;            // size of one block
  std::int64_t row_blocks, block_count;  // blocks per column of blocks, blocks in total
};

// A block of 512 x 512 reads each packed element of a and b 512 times, which hides the packing, and its part of c (1
// MiB) is still in the second-level cache for the epilogue. Smaller matrices are cut until there is work for eight
// threads, as long as blocks stay at least 128 wide (for narrower ones packing costs more than the threads gain), and
// always for two. A product too small to share is one block.
Blocks cut(std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  constexpr std::int64_t smallest_shared = 1 << 18;  // multiply-adds; about ten microseconds
  Blocks b{std::min<std::int64_t>(rows, 512), std::min<std::int64_t>(columns, 512), 0, 0};
  const auto count = [&](std::int64_t r, std::int64_t c) { return ((rows + r - 1) / r) * ((columns + c - 1) / c); };
  if (rows * columns * depth < smallest_shared) {
    b.rows = rows;
    b.columns = columns;
  } else {
    for (;;) {
      const std::int64_t blocks = count(b.rows, b.columns);
      const std::int64_t least = blocks < 2 ? 64 : 128;
      std::int64_t& longer = b.rows >= b.columns ? b.rows : b.columns;
      if (blocks >= 8 || longer < 2 * least) break;
      longer = (longer / 2 + 15) / 16 * 16;
    }
  }
  b.row_blocks = (rows + b.rows - 1) / b.rows;
  b.block_count = count(b.rows, b.columns);
  return b;
}

template <class T>
BlasMatrix<const T> matrix(const Tensor& v) {
  const bool transposed = v.stride(1) != 1 && v.size(1) != 1;
  const std::int64_t leading = transposed ? v.stride(1) : v.stride(0);
  // The stride of a matrix with one stored row is arbitrary, but BLAS requires at least the row's length.
  return {v.as<T>(), std::max(leading, transposed ? v.size(0) : v.size(1)), transposed};
}

template <class T>
const T* at(const BlasMatrix<const T>& m, std::int64_t row, std::int64_t column) {
  return m.transposed ? m.data + column * m.leading + row : m.data + row * m.leading + column;
}

template <class T>
void add_bias(T* c, const T* bias, std::int64_t n) {
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) c[j] += bias[j];
}

template <class T>
void add_bias_gelu(T* c, const T* bias, T* activated, std::int64_t n) {
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) {
    const T x = c[j] + bias[j];
    c[j] = x;
    activated[j] = gelu_of(x);
  }
}

template <class T>
void times_gelu_slope(T* c, const T* input, std::int64_t n) {
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) c[j] *= gelu_slope_of(input[j]);
}

template <class T>
void add_bias_relu(T* c, const T* bias, std::int64_t n) {
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) {
    const T x = c[j] + bias[j];
    c[j] = x > 0 ? x : T(0);
  }
}

template <class T>
void where_positive(T* c, const T* activated, std::int64_t n) {
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) c[j] = activated[j] > 0 ? c[j] : T(0);
}

template <class T>
T* row_of(const Tensor& v, std::int64_t row, std::int64_t column) {
  return v.as<T>() + row * v.stride(0) + column;
}

// Rows [r0, r0 + rows) and columns [c0, c0 + columns) of c.
template <class T>
void finish_block(const GemmArgs& args, std::int64_t r0, std::int64_t rows, std::int64_t c0, std::int64_t columns) {
  for (std::int64_t r = r0; r < r0 + rows; ++r) {
    T* c = row_of<T>(args.c, r, c0);
    switch (args.epilogue) {
      case Epilogue::none:
        return;
      case Epilogue::bias:
        add_bias(c, args.bias.as<const T>() + c0, columns);
        break;
      case Epilogue::bias_gelu:
        add_bias_gelu(c, args.bias.as<const T>() + c0, row_of<T>(args.activated, r, c0), columns);
        break;
      case Epilogue::gelu_backward:
        times_gelu_slope(c, row_of<const T>(args.activated, r, c0), columns);
        break;
      case Epilogue::bias_relu:
        add_bias_relu(c, args.bias.as<const T>() + c0, columns);
        break;
      case Epilogue::relu_backward:
        where_positive(c, row_of<const T>(args.activated, r, c0), columns);
        break;
    }
  }
}

// Block [r0, r0 + rows) x [c0, c0 + columns) of c begins as that of the addend.
template <class T>
void begin_block(const GemmArgs& args, std::int64_t r0, std::int64_t rows, std::int64_t c0, std::int64_t columns) {
  for (std::int64_t r = r0; r < r0 + rows; ++r)
    std::copy_n(row_of<const T>(args.addend, r, c0), columns, row_of<T>(args.c, r, c0));
}

template <class T>
void run(const GemmArgs& args) {
  const std::int64_t rows = args.c.size(0), columns = args.c.size(1), depth = args.a.size(1);
  const BlasMatrix<const T> a = matrix<T>(args.a), b = matrix<T>(args.b);
  const BlasMatrix<T> c{args.c.as<T>(), std::max(args.c.stride(0), columns)};
  const Blocks blocks = cut(rows, columns, depth);
#pragma omp parallel for schedule(static) if (blocks.block_count > 1)
  for (std::int64_t i = 0; i < blocks.block_count; ++i) {
    const std::int64_t r0 = i % blocks.row_blocks * blocks.rows, c0 = i / blocks.row_blocks * blocks.columns;
    const std::int64_t r = std::min(blocks.rows, rows - r0), n = std::min(blocks.columns, columns - c0);
    if (args.addend.given()) begin_block<T>(args, r0, r, c0, n);
    multiply<T>(r, n, depth, {at(a, r0, 0), a.leading, a.transposed}, {at(b, 0, c0), b.leading, b.transposed},
                args.accumulate || args.addend.given(), {c.data + r0 * c.leading + c0, c.leading});
    finish_block<T>(args, r0, r, c0, n);
  }
}

// One of a stack of matrices.
Tensor matrix_of(const Tensor& stack, std::int64_t i) {
  return {stack.slice(0, i, i + 1).data(),
          stack.dtype(),
          {stack.size(1), stack.size(2)},
          {stack.stride(1), stack.stride(2)}};
}

// The product of the values that 8-bit operands stand for. Scales are powers of two, so a value times its row's scale
// is exact.
template <class T>
void run_scaled(const GemmArgs& args) {
  const std::int64_t rows = args.c.size(0), columns = args.c.size(1), depth = args.a.size(1);
  const auto values = [&](const Tensor& m, const Tensor& scales) {  // m (rows, depth)
    std::vector<T> out(static_cast<std::size_t>(m.size(0) * depth));
#pragma omp parallel for schedule(static) if (m.count() > 16384)
    for (std::int64_t r = 0; r < m.size(0); ++r)
      for (std::int64_t k = 0; k < depth; ++k)
        out[static_cast<std::size_t>(r * depth + k)] =
            static_cast<T>(fp8_value(m.as<const std::uint8_t>()[r * m.stride(0) + k], m.dtype())) *
            static_cast<T>(scales.as<const float>()[r]);
    return out;
  };
  std::vector<T> a = values(args.a, args.a_scales), b = values(args.b.transposed(), args.b_scales);
  GemmArgs exact = args;
  exact.a = Tensor(a.data(), args.c.dtype(), {rows, depth});
  exact.b = Tensor(b.data(), args.c.dtype(), {columns, depth}).transposed();
  run<T>(exact);
}

}  // namespace

void gemm(const GemmArgs& args, const Launch& launch) {
  if (args.c.count() == 0) return;
  if (args.c.rank() == 3) {
    GemmArgs one = args;
    for (std::int64_t i = 0; i < args.c.size(0); ++i) {
      one.a = matrix_of(args.a, i);
      one.b = matrix_of(args.b, i);
      one.c = matrix_of(args.c, i);
      gemm(one, launch);
    }
    return;
  }
  {
    const double operations = 2.0 * static_cast<double>(args.c.count()) * static_cast<double>(args.a.size(1));
    const MeteredRange range(launch.meter,
                             {WorkKind::product, bytes_of(args.a, args.b, args.c, args.addend), operations});
    with_float_type(args.c.dtype(), [&](auto zero) {
      args.a_scales.given() ? run_scaled<decltype(zero)>(args) : run<decltype(zero)>(args);
    });
  }
  if (args.column_sums.given()) column_sum({args.c, args.column_sums, args.scratch}, launch);
}

}  // namespace cpu
}  // namespace longstride::kernels
