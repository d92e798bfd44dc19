// Measures where the time goes, for `bench step`. A range encloses what an op puts on a stream; ranges nest, and the
// outermost one counts.
#pragma once
#include <cstdint>

#include "kernels/base/tensor.h"

namespace longstride::kernels {

enum class WorkKind : std::uint8_t {
  product,
  attention_forward,
  attention_backward,
  normalise,  // with residual addition and dropout
  gelu,
  column_sum,
  embedding,
  loss,
  optimizer,
  quantise,
  other
};
inline constexpr int works = 11;

// The least that an op must read, write and compute.
struct Cost {
  WorkKind work = WorkKind::other;
  double bytes = 0, operations = 0;
  double speed = 1;  // speed of the operations, compared with those of products in the compute type
};

class Meter {
 public:
  virtual ~Meter() = default;
  virtual void begin(const Cost& cost) = 0;
  virtual void end() = 0;
};

class MeteredRange {
 public:
  MeteredRange(Meter* meter, const Cost& cost) : meter_(meter) {
    if (meter_ != nullptr) meter_->begin(cost);
  }
  ~MeteredRange() {
    if (meter_ != nullptr) meter_->end();
  }
  MeteredRange(const MeteredRange&) = delete;
  MeteredRange& operator=(const MeteredRange&) = delete;

 private:
  Meter* meter_;
};

inline double bytes_of(const Tensor& v) {
  return static_cast<double>(v.count()) * static_cast<double>(bytes_of(v.dtype()));
}
template <class... Views>
double bytes_of(const Tensor& first, const Views&... rest) {
  return bytes_of(first) + (bytes_of(rest) + ...);
}

}  // namespace longstride::kernels
