#include <algorithm>
#include <vector>

#include "kernels/base/add_partials.h"
#include "kernels/base/fast_math.h"
#include "kernels/base/tensor_checks.h"
#include "kernels/short_convolution/short_convolution.h"

namespace longstride::kernels {
namespace {

template <class Args>
void check_convolution(Device device, const Args& args) {
  const Tensor &x = args.x, &weight = args.weight;
  check_computes(device, x, "a convolution's x");
  LONGSTRIDE_CHECK(x.rank() == 3 && x.count() > 0, "a convolution's x is {}, but must be (batch, seq, channels)",
                   x.shape().text());
  check_contiguous(x, "a convolution's x");
  LONGSTRIDE_CHECK(
      weight.rank() == 2 && weight.size(0) == x.size(2) && weight.size(1) >= 2 && weight.size(1) <= widest_convolution,
      "a convolution's weight is {} for x {}, but must be (channels, 2 to {})", weight.shape().text(), x.shape().text(),
      widest_convolution);
  check_vector(weight, weight.count(), exact_type(device, x.dtype()), "a convolution's weight");
  if (args.bias.given()) check_vector(args.bias, x.size(2), weight.dtype(), "a convolution's bias");
  const std::int64_t rows = x.size(0) * (weight.size(1) - 1) * x.size(2);
  if (args.before.given()) check_vector(args.before, rows, x.dtype(), "the rows before a convolution");
  if (args.begin.given()) check_vector(args.begin, x.size(0) * x.size(1), Dtype::i32, "a convolution's begin");
}

}  // namespace

void ShortConvolutionArgs::check(Device device) const {
  check_convolution(device, *this);
  check_vector(y, x.count(), x.dtype(), "a convolution's y");
  if (!after.given()) return;
  check_vector(after, x.size(0) * (weight.size(1) - 1) * x.size(2), x.dtype(), "the rows behind a convolution");
  LONGSTRIDE_CHECK(after.data() == nullptr || after.data() != before.data() || x.size(1) == 1,
                   "a convolution of {} rows cannot write over the rows before it", x.size(1));
}

void ShortConvolutionBackwardArgs::check(Device device) const {
  check_convolution(device, *this);
  check_vector(dy, x.count(), x.dtype(), "a convolution's dy");
  check_vector(dx, x.count(), x.dtype(), "a convolution's dx");
  check_vector(dweight, weight.count(), weight.dtype(), "a convolution's dweight");
  LONGSTRIDE_CHECK(dbias.given() == bias.given(), "a convolution's dbias is given without bias, or lacks");
  if (bias.given()) check_vector(dbias, bias.count(), bias.dtype(), "a convolution's dbias");
}

namespace cpu {
namespace {

// The rows of a sequence and those before it.
template <class T>
struct ConvolvedRows {
  const T *x, *before;  // one sequence's; before: null if there are none
  const T *weight, *bias;
  const std::int32_t* begin;
  std::int64_t channels, width;

  template <class Args>
  ConvolvedRows(const Args& args, std::int64_t s)
      : weight(args.weight.template as<const T>()),
        bias(args.bias.template as<const T>()),
        channels(args.x.size(2)),
        width(args.weight.size(1)) {
    const std::int64_t n = args.x.size(1);
    x = args.x.template as<const T>() + s * n * channels;
    before = args.before.given() ? args.before.template as<const T>() + s * (width - 1) * channels : nullptr;
    begin = args.begin.given() ? args.begin.template as<const std::int32_t>() + s * n : nullptr;
  }
  // Row p as position t sees it; null: as zeros.
  const T* seen(std::int64_t p, std::int64_t t) const {
    const std::int64_t first = begin != nullptr ? begin[t] : 0;
    if (p >= 0) return p >= first ? x + p * channels : nullptr;
    return first == 0 && before != nullptr ? before + (p + width - 1) * channels : nullptr;
  }
  void sum(std::int64_t t, T* out) const {
    bias != nullptr ? std::copy_n(bias, channels, out) : std::fill_n(out, channels, T(0));
    for (std::int64_t j = 0; j < width; ++j)
      if (const T* row = seen(t - j, t); row != nullptr)
        for (std::int64_t c = 0; c < channels; ++c) out[c] += weight[c * width + width - 1 - j] * row[c];
  }
};

template <class T>
void keep_last(const ShortConvolutionArgs& args) {
  const std::int64_t n = args.x.size(1), channels = args.x.size(2), kept = args.weight.size(1) - 1;
#pragma omp parallel for schedule(static) if (args.x.size(0) * kept * channels > 16384)
  for (std::int64_t s = 0; s < args.x.size(0); ++s) {
    const ConvolvedRows<T> rows(args, s);
    for (std::int64_t r = 0; r < kept; ++r) {  // in this order, because `after` may be `before`
      T* to = args.after.as<T>() + (s * kept + r) * channels;
      if (const T* from = rows.seen(n - kept + r, n - 1); from != nullptr)
        std::copy_n(from, channels, to);
      else
        std::fill_n(to, channels, T(0));
    }
  }
}

// The gradients of p at the rows that read one row, by their positions modulo the width.
template <class T>
class SumGradients {
 public:
  SumGradients(const ShortConvolutionBackwardArgs& args, std::int64_t s)
      : rows_(args, s),
        n_(args.x.size(1)),
        dy_(args.dy.as<const T>() + s * n_ * rows_.channels),
        ring_(static_cast<std::size_t>(rows_.width * rows_.channels)) {}

  void compute(std::int64_t t) {
    if (t >= n_) return;
    T* p = at(t);
    rows_.sum(t, p);
    for (std::int64_t c = 0; c < rows_.channels; ++c) {
      const T sigmoid = sigmoid_of(p[c]);
      p[c] = dy_[t * rows_.channels + c] * sigmoid * (1 + p[c] * (1 - sigmoid));
    }
  }
  // dbias: null if there is none.
  void add_row(std::int64_t t, T* dx, T* dweight, T* dbias) {
    const std::int64_t width = rows_.width, channels = rows_.channels;
    std::fill_n(dx, channels, T(0));
    for (std::int64_t c = 0; dbias != nullptr && c < channels; ++c) dbias[c] += at(t)[c];
    for (std::int64_t j = 0; j < width; ++j) {
      if (t + j < n_ && rows_.seen(t, t + j) != nullptr)
        for (std::int64_t c = 0; c < channels; ++c) dx[c] += rows_.weight[c * width + width - 1 - j] * at(t + j)[c];
      if (const T* row = rows_.seen(t - j, t); row != nullptr)
        for (std::int64_t c = 0; c < channels; ++c) dweight[c * width + width - 1 - j] += at(t)[c] * row[c];
    }
  }

 private:
  T* at(std::int64_t t) { return ring_.data() + t % rows_.width * rows_.channels; }

  ConvolvedRows<T> rows_;
  std::int64_t n_;
  const T* dy_;
  std::vector<T> ring_;
};

template <class T>
void backward(const ShortConvolutionBackwardArgs& args) {
  const std::int64_t n = args.x.size(1), rows = args.x.size(0) * n, channels = args.x.size(2),
                     width = args.weight.size(1), weights = args.weight.count(),
                     sums = weights + (args.bias.given() ? channels : 0);
  T* partials = args.scratch.as<T>();
  const RowChunks split = row_chunks(rows);
#pragma omp parallel if (args.x.count() > 16384)
  {
#pragma omp for schedule(static) nowait
    for (std::int64_t chunk = 0; chunk < split.chunks; ++chunk) {
      T* const dweight = partials + chunk * sums;
      T* const dbias = args.bias.given() ? dweight + weights : nullptr;
      std::fill_n(dweight, sums, T(0));
      std::int64_t row = chunk * split.rows;
      const std::int64_t end = std::min(rows, row + split.rows);
      while (row < end) {
        SumGradients<T> gradients(args, row / n);
        for (std::int64_t j = 0; j < width - 1; ++j) gradients.compute(row % n + j);
        for (const std::int64_t last = std::min(end, (row / n + 1) * n); row < last; ++row) {
          gradients.compute(row % n + width - 1);
          gradients.add_row(row % n, args.dx.as<T>() + row * channels, dweight, dbias);
        }
      }
    }
    add_partials(partials, split.chunks, weights, sums, args.dweight.as<T>());
    if (args.bias.given()) add_partials(partials + weights, split.chunks, channels, sums, args.dbias.as<T>());
  }
}

}  // namespace

void short_convolution(const ShortConvolutionArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t n = args.x.size(1), channels = args.x.size(2);
#pragma omp parallel for schedule(static) if (args.x.count() > 16384)
    for (std::int64_t row = 0; row < args.x.size(0) * n; ++row) {
      T* y = args.y.as<T>() + row * channels;
      ConvolvedRows<T>(args, row / n).sum(row % n, y);
      for (std::int64_t c = 0; c < channels; ++c) y[c] *= sigmoid_of(y[c]);
    }
    if (args.after.given()) keep_last<T>(args);
  });
}

void short_convolution_backward(const ShortConvolutionBackwardArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) { backward<decltype(zero)>(args); });
}

}  // namespace cpu
}  // namespace longstride::kernels
