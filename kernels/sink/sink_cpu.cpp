#include <cmath>

#include "kernels/base/add_partials.h"
#include "kernels/base/tensor_checks.h"
#include "kernels/sink/sink.h"

namespace longstride::kernels {
namespace {

template <class Args>
void check_sink(Device device, const Args& args) {
  const Tensor& o = args.o;
  check_computes(device, o, "attention's o");
  LONGSTRIDE_CHECK(o.rank() == 4, "attention's o is {}, but must be (batch, seq, heads, size)", o.shape().text());
  const Dtype exact = exact_type(device, o.dtype());
  const Shape rows{o.size(0), o.size(2), o.size(1)};
  check_rows(o, o.shape(), o.dtype(), "attention's o");
  LONGSTRIDE_CHECK(args.lse.shape() == rows, "attention's lse is {}, but must be {}", args.lse.shape().text(),
                   rows.text());
  check_vector(args.lse, rows.count(), exact, "attention's lse");
  check_vector(args.sink, o.size(2), exact, "attention's sink");
}

}  // namespace

void SinkArgs::check(Device device) const { check_sink(device, *this); }

void SinkBackwardArgs::check(Device device) const {
  check_sink(device, *this);
  check_rows(dout, o.shape(), o.dtype(), "attention's dout");
  check_vector(dsink, o.size(2), sink.dtype(), "the sink's gradient");
}

namespace cpu {
namespace {

// The first element of a head at a row, of all sequences' rows.
template <class T>
T* head_of(const Tensor& x, std::int64_t row, std::int64_t h) {
  const std::int64_t n = x.size(1);
  return x.as<T>() + row / n * x.stride(0) + row % n * x.stride(1) + h * x.stride(2);
}

template <class T>
void add_sink(const SinkArgs& args) {
  const std::int64_t n = args.o.size(1), heads = args.o.size(2), size = args.o.size(3);
  const T* sink = args.sink.as<const T>();
#pragma omp parallel for schedule(static) if (args.o.count() > 16384)
  for (std::int64_t row = 0; row < args.o.size(0) * n; ++row)
    for (std::int64_t h = 0; h < heads; ++h) {
      T* o = head_of<T>(args.o, row, h);
      T& lse = args.lse.as<T>()[(row / n * heads + h) * n + row % n];
      const T share = T(1) / (T(1) + std::exp(sink[h] - lse));  // 0 where no key was seen
      for (std::int64_t d = 0; d < size; ++d) o[d] *= share;
      lse = std::max(lse, sink[h]) + std::log1p(std::exp(-std::abs(lse - sink[h])));
    }
}

template <class T>
void add_gradient(const SinkBackwardArgs& args) {
  const std::int64_t n = args.o.size(1), heads = args.o.size(2), size = args.o.size(3), rows = args.o.size(0) * n;
  const T* sink = args.sink.as<const T>();
  T* partials = args.scratch.as<T>();
  const RowChunks split = row_chunks(rows);
#pragma omp parallel if (args.o.count() > 16384)
  {
#pragma omp for schedule(static) nowait
    for (std::int64_t chunk = 0; chunk < split.chunks; ++chunk) {
      T* sum = partials + chunk * heads;
      std::fill_n(sum, heads, T(0));
      for (std::int64_t row = chunk * split.rows; row < std::min(rows, (chunk + 1) * split.rows); ++row)
        for (std::int64_t h = 0; h < heads; ++h) {
          const T *o = head_of<const T>(args.o, row, h), *dout = head_of<const T>(args.dout, row, h);
          T dot = 0;
#pragma omp simd reduction(+ : dot)
          for (std::int64_t d = 0; d < size; ++d) dot += dout[d] * o[d];
          sum[h] -= std::exp(sink[h] - args.lse.as<const T>()[(row / n * heads + h) * n + row % n]) * dot;
        }
    }
    add_partials(partials, split.chunks, heads, heads, args.dsink.as<T>());
  }
}

}  // namespace

void sink(const SinkArgs& args, const Launch&) {
  with_float_type(args.o.dtype(), [&](auto zero) { add_sink<decltype(zero)>(args); });
}

void sink_backward(const SinkBackwardArgs& args, const Launch&) {
  with_float_type(args.o.dtype(), [&](auto zero) { add_gradient<decltype(zero)>(args); });
}

}  // namespace cpu
}  // namespace longstride::kernels
