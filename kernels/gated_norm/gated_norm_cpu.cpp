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
  if (args.gain.given()) {
    LONGSTRIDE_CHECK(args.gain.count() > 0 && args.gain.size(-1) == x.size(1) && x.count() % args.gain.count() == 0,
                     "a gated norm's gain is {} for x {}", args.gain.shape().text(), x.shape().text());
    check_vector(args.gain, args.gain.count(), exact_type(device, x.dtype()), "gain");
  }
  LONGSTRIDE_CHECK(!args.gate_first || (args.gain.given() && args.gate.given()), "a gate is first without a norm");
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
  if (gain.given()) check_vector(dgain, gain.count(), gain.dtype(), "dgain");
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

template <class T>
T inverse_gated_size(const T* x, const T* gate, std::int64_t size) {
  T squares = 0;
  for (std::int64_t j = 0; j < size; ++j) {
    const T u = x[j] * gate[j] * sigmoid_of(gate[j]);
    squares += u * u;
  }
  return T(1) / std::sqrt(squares / static_cast<T>(size) + static_cast<T>(gated_norm_epsilon));
}

// The gain of a row.
template <class Args, class T>
const T* gain_of(const Args& args, std::int64_t row) {
  if (!args.gain.given()) return nullptr;
  const std::int64_t size = args.x.size(1), sets = args.gain.count() / size;
  return args.gain.template as<const T>() + row % sets * size;
}

// dx may be dy: element j is read before it is written.
template <class T>
void gate_first_backward_row(const GatedNormBackwardArgs& args, std::int64_t row, T* dgain) {
  const std::int64_t size = args.x.size(1), at = row * size;
  const T *x = args.x.as<const T>() + at, *dy = args.dy.as<const T>() + at, *gate = args.gate.as<const T>() + at,
          *gain = gain_of<GatedNormBackwardArgs, T>(args, row);
  T *dx = args.dx.as<T>() + at, *dgate = args.dgate.as<T>() + at;
  const T r = inverse_gated_size(x, gate, size);
  T along = 0;
  for (std::int64_t j = 0; j < size; ++j) along += dy[j] * gain[j] * x[j] * gate[j] * sigmoid_of(gate[j]) * r;
  along /= static_cast<T>(size);
  for (std::int64_t j = 0; j < size; ++j) {
    const T s = sigmoid_of(gate[j]), h = x[j] * gate[j] * s * r;
    dgain[j] += dy[j] * h;
    const T du = r * (dy[j] * gain[j] - h * along);
    dgate[j] = du * x[j] * s * (1 + gate[j] * (1 - s));
    dx[j] = du * gate[j] * s;
  }
}

// dx may be dy: element j is read before it is written.
template <class T>
void backward_row(const GatedNormBackwardArgs& args, std::int64_t row, T* dgain) {
  const std::int64_t size = args.x.size(1), at = row * size;
  const T *x = args.x.as<const T>() + at, *dy = args.dy.as<const T>() + at,
          *gain = gain_of<GatedNormBackwardArgs, T>(args, row);
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
#pragma omp parallel for schedule(static) if (rows * size > 16384)
    for (std::int64_t row = 0; row < rows; ++row) {
      const T *x = args.x.as<const T>() + row * size, *gain = gain_of<GatedNormArgs, T>(args, row),
              *gate = args.gate.given() ? args.gate.as<const T>() + row * size : nullptr;
      T* y = args.y.as<T>() + row * size;
      const T r = gain == nullptr ? T(1) : args.gate_first ? inverse_gated_size(x, gate, size) : inverse_size(x, size);
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
    const std::int64_t rows = args.x.size(0), size = args.x.size(1),
                       gains = args.gain.given() ? args.gain.count() : size;
    const std::int64_t sets = gains / size;
    T* partials = args.scratch.as<T>();
    const RowChunks split = row_chunks(rows / sets);
#pragma omp parallel if (rows * size > 16384)
    {
#pragma omp for schedule(static) nowait
      for (std::int64_t chunk = 0; chunk < split.chunks; ++chunk) {
        T* const dgain = args.gain.given() ? partials + chunk * gains : nullptr;
        if (dgain != nullptr) std::fill_n(dgain, gains, T(0));
        const std::int64_t end = std::min(rows, (chunk + 1) * split.rows * sets);
        for (std::int64_t row = chunk * split.rows * sets; row < end; ++row) {
          T* const own = dgain != nullptr ? dgain + row % sets * size : nullptr;
          args.gate_first ? gate_first_backward_row<T>(args, row, own) : backward_row<T>(args, row, own);
        }
      }
      if (args.gain.given()) add_partials(partials, split.chunks, gains, gains, args.dgain.as<T>());
    }
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
