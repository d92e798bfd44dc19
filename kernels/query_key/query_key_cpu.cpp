#include "kernels/query_key/query_key.h"

#include <vector>

#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {

namespace {

void check_call(Device device, const QueryKeyTransform& transform, const Tensor& x, const Tensor& begin) {
  check_computes(device, x, "x");
  LONGSTRIDE_CHECK(x.rank() == 4, "queries or keys are {}, but must be (batch, seq, heads, size)", x.shape().text());
  check_rows(x, x.shape(), x.dtype(), "x");
  LONGSTRIDE_CHECK(transform.any(), "query_key called without a transformation");
  LONGSTRIDE_CHECK(!transform.rotates() || x.size(3) % 2 == 0, "a rotation of {} elements, an odd number", x.size(3));
  if (begin.given()) check_vector(begin, x.size(0) * x.size(1), Dtype::i32, "begin");
}

}  // namespace

void QueryKeyArgs::check(Device device) const {
  check_call(device, transform, x, begin);
  LONGSTRIDE_CHECK(!begin.given() || first_at == nullptr, "documents while decoding");
  check_rows(y, x.shape(), x.dtype(), "y");
}

void QueryKeyBackwardArgs::check(Device device) const {
  check_call(device, transform, x, begin);
  check_rows(dy, x.shape(), x.dtype(), "dy");
  check_rows(dx, x.shape(), x.dtype(), "dx");
}

namespace cpu {
namespace {

// The rotation of every pair at one position; all heads share it.
template <class T>
class Rotation {
 public:
  Rotation(const QueryKeyTransform& transform, std::int64_t size) {
    if (!transform.rotates()) return;
    for (std::int64_t i = 0; i < size / 2; ++i) turns_.push_back(transform.turns(i, size));
    cosine_.resize(turns_.size());
    sine_.resize(turns_.size());
  }
  void move_to(std::int64_t position) {
    constexpr double pi = 3.14159265358979323846;
    for (std::size_t i = 0; i < turns_.size(); ++i) {
      const double turns = static_cast<double>(position) * turns_[i], angle = 2 * pi * (turns - std::rint(turns));
      cosine_[i] = static_cast<T>(std::cos(angle));
      sine_[i] = static_cast<T>(std::sin(angle));
    }
  }
  std::int64_t pairs() const { return static_cast<std::int64_t>(turns_.size()); }
  const T* cosine() const { return cosine_.data(); }
  const T* sine() const { return sine_.data(); }

 private:
  std::vector<double> turns_;
  std::vector<T> cosine_, sine_;
};

template <class T>
T inverse_root_mean_square(const T* x, std::int64_t size) {
  T squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t d = 0; d < size; ++d) squares += x[d] * x[d];
  return T(1) / std::sqrt(squares / static_cast<T>(size) + static_cast<T>(QueryKeyTransform::epsilon));
}

template <class T>
void forward_row(const QueryKeyTransform& transform, const Rotation<T>& rotation, const T* x, T* y, std::int64_t size) {
  const T factor = static_cast<T>(transform.scale) * (transform.normalise ? inverse_root_mean_square(x, size) : T(1));
#pragma omp simd
  for (std::int64_t d = 0; d < size; ++d) y[d] = x[d] * factor;
  const T *cosine = rotation.cosine(), *sine = rotation.sine();
#pragma omp simd
  for (std::int64_t i = 0; i < rotation.pairs(); ++i) {
    const T a = y[2 * i], b = y[2 * i + 1];
    y[2 * i] = a * cosine[i] - b * sine[i];
    y[2 * i + 1] = a * sine[i] + b * cosine[i];
  }
}

// With g the gradient rotated back and h = x r: dx = scale r (g - h mean(g h)).
template <class T>
void backward_row(const QueryKeyTransform& transform, const Rotation<T>& rotation, const T* dy, const T* x, T* dx,
                  std::int64_t size) {
  const T *cosine = rotation.cosine(), *sine = rotation.sine();
#pragma omp simd
  for (std::int64_t i = 0; i < rotation.pairs(); ++i) {
    const T a = dy[2 * i], b = dy[2 * i + 1];
    dx[2 * i] = a * cosine[i] + b * sine[i];
    dx[2 * i + 1] = b * cosine[i] - a * sine[i];
  }
  const T* g = transform.rotates() ? dx : dy;
  const T scale = static_cast<T>(transform.scale);
  if (!transform.normalise) {
#pragma omp simd
    for (std::int64_t d = 0; d < size; ++d) dx[d] = scale * g[d];
    return;
  }
  const T factor = inverse_root_mean_square(x, size);
  T along = 0;
#pragma omp simd reduction(+ : along)
  for (std::int64_t d = 0; d < size; ++d) along += g[d] * (x[d] * factor);
  along /= static_cast<T>(size);
#pragma omp simd
  for (std::int64_t d = 0; d < size; ++d) dx[d] = scale * factor * (g[d] - x[d] * factor * along);
}

template <class T>
T* row(const Tensor& v, std::int64_t sequence, std::int64_t slot, std::int64_t head) {
  return v.as<T>() + sequence * v.stride(0) + slot * v.stride(1) + head * v.stride(2);
}

// Calls f(rotation, sequence, slot, head) for every row of x.
template <class T, class F>
void each_row(const QueryKeyTransform& transform, const Tensor& x, std::int64_t first, const Tensor& begin, F&& f) {
  const auto* begins = begin.as<const std::int32_t>();
  const std::int64_t seq = x.size(1), slots = x.size(0) * seq;
#pragma omp parallel if (x.count() > 16384)
  {
    Rotation<T> rotation(transform, x.size(3));
#pragma omp for schedule(static)
    for (std::int64_t i = 0; i < slots; ++i) {
      rotation.move_to(first + i % seq - (begins != nullptr ? begins[i] : 0));
      for (std::int64_t head = 0; head < x.size(2); ++head) f(rotation, i / seq, i % seq, head);
    }
  }
}

}  // namespace

void query_key(const QueryKeyArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_row<T>(args.transform, args.x, args.first, args.begin,
                [&](const Rotation<T>& rotation, std::int64_t sequence, std::int64_t slot, std::int64_t head) {
                  forward_row<T>(args.transform, rotation, row<const T>(args.x, sequence, slot, head),
                                 row<T>(args.y, sequence, slot, head), args.x.size(3));
                });
  });
}

void query_key_backward(const QueryKeyBackwardArgs& args, const Launch&) {
  with_float_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_row<T>(args.transform, args.x, args.first, args.begin,
                [&](const Rotation<T>& rotation, std::int64_t sequence, std::int64_t slot, std::int64_t head) {
                  backward_row<T>(args.transform, rotation, row<const T>(args.dy, sequence, slot, head),
                                  row<const T>(args.x, sequence, slot, head), row<T>(args.dx, sequence, slot, head),
                                  args.x.size(3));
                });
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
