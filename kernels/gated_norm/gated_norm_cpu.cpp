#include <algorithm>
#include <cmath>

#include "kernels/base/add_partials.h"
#include "kernels/base/fast_math.h"
#include "kernels/base/tensor_checks.h"
#include "kernels/gated_norm/gated_norm.h"

namespace longstride::kernels {
namespace {

template <class Args>
void check_norm(Device device, const Args& args) {
  const Tensor& x = args.x;
  check_computes(device, x, "a gated norm's x");
  LONGSTRIDE_CHECK(x.rank() == 2 && x.count() > 0, "a gated norm's x is {}, but must be (rows, size)",
                   x.shape().text());
  check_contiguous(x, "a gated norm's x");
  LONGSTRIDE_CHECK(device == Device::cpu || x.size(1) <= widest_gated_row, "a gated norm of rows of {}", x.size(1));
  LONGSTRIDE_CHECK(args.gain.given() || args.gate.given(), "a gated norm with neither gain nor gate");
  if (args.gain.given()) check_vector(args.gain, x.size(1), exact_type(device, x.dtype()), "gain");
  if (args.gate.given()) check_vector(args.gate, x.count(), x.dtype(), "gate");
}

}  // namespace

void GatedNormArgs::check(Device device) const {
  check_norm(device, *this);
  check_vector(y, x.count(), x.dtype(), "a gated norm's y");
}

void GatedNormBackwardArgs::check(Device device) const {
  check_norm(device, *this);
  check_vector(dy, x.count(), x.dtype(), "a gated norm's dy");
  check_vector(dx, x.count(), x.dtype(), "a gated norm's dx");
  LONGSTRIDE_CHECK(dgain.given() == gain.given() && dgate.given() == gate.given(), "a gradient that is not asked for");
  if (gain.given()) check_vector(dgain, x.size(1), gain.dtype(), "dgain");
  if (gate.given()) check_vector(dgate, x.count(), x.dtype(), "dgate");
}

namespace cpu {
namespace {

template <class T>
T inverse_size(const T* x, std::int64_t size) {
  T squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t j = 0; j < size; ++j) squares += x[j] * x[j];
  return T(1) / std::sqrt(squares / static_cast<T>(size) + static_cast<T>(gated_norm_epsilon));
}

// dx may be dy: element j is read before it is written.
template <class T>
void backward_row(const GatedNormBackwardArgs& args, std::int64_t row, T* dgain) {
  const std::int64_t size = args.x.size(1), at = row * size;
  const T *x = args.x.as<const T>() + at, *dy = args.dy.as<const T>() + at, *gain = args.gain.as<const T>();
  const T* gate = args.gate.given() ? args.gate.as<const T>() + at : nullptr;
  T *dx = args.dx.as<T>() + at, *dgate = gate != nullptr ? args.dgate.as<T>() + at : nullptr;
  const T r = gain != nullptr ? inverse_size(x, size) : T(1);
  T along = 0;
  for (std::int64_t j = 0; j < size; ++j) {
    const T h = x[j] * r, scale = gain != nullptr ? gain[j] : T(1);
    T u = dy[j];
    if (gate != nullptr) {
      const T s = sigmoid_of(gate[j]);
      dgate[j] = u * h * scale * s * (1 + gate[j] * (1 - s));
      u *= gate[j] * s;
    }
    if (gain != nullptr) dgain[j] += u * h;
    dx[j] = u * scale;
    along += dx[j] * h;
  }
  if (gain == nullptr) return;
  along /= static_cast<T>(size);
#pragma omp simd
  for (std::int64_t j = 0; j < size; ++j) dx[j] = r * (dx[j] - x[j] * r * along);
}

}  // namespace

void gated_norm(const GatedNormArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t rows = args.x.size(0), size = args.x.size(1);
    const T* gain = args.gain.as<const T>();
#pragma omp parallel for schedule(static) if (rows * size > 16384)
    for (std::int64_t row = 0; row < rows; ++row) {
      const T *x = args.x.as<const T>() + row * size,
              *gate = args.gate.given() ? args.gate.as<const T>() + row * size : nullptr;
      T* y = args.y.as<T>() + row * size;
      const T r = gain != nullptr ? inverse_size(x, size) : T(1);
      for (std::int64_t j = 0; j < size; ++j) {
        const T h = gain != nullptr ? x[j] * r * gain[j] : x[j];
        y[j] = gate != nullptr ? h * gate[j] * sigmoid_of(gate[j]) : h;
      }
    }
  });
}

void gated_norm_backward(const GatedNormBackwardArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t rows = args.x.size(0), size = args.x.size(1);
    T* partials = args.scratch.as<T>();
    const RowChunks split = row_chunks(rows);
#pragma omp parallel if (rows * size > 16384)
    {
#pragma omp for schedule(static) nowait
      for (std::int64_t chunk = 0; chunk < split.chunks; ++chunk) {
        T* const dgain = args.gain.given() ? partials + chunk * size : nullptr;
        if (dgain != nullptr) std::fill_n(dgain, size, T(0));
        for (std::int64_t row = chunk * split.rows; row < std::min(rows, (chunk + 1) * split.rows); ++row)
          backward_row<T>(args, row, dgain);
      }
      if (args.gain.given()) add_partials(partials, split.chunks, size, size, args.dgain.as<T>());
    }
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
