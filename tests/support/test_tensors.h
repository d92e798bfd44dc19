// Tensors that own their memory, random contents, and a context to run ops in.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "framework/core/context.h"
#include "kernels/base/philox.h"

namespace longstride::testing {

// A contiguous tensor that owns its elements, zero at first.
class OwnedTensor {
 public:
  OwnedTensor(const Shape& shape, Dtype dtype)
      : bytes_(static_cast<std::size_t>(shape.count()) * bytes_of(dtype)), tensor_(bytes_.data(), dtype, shape) {}
  OwnedTensor(const OwnedTensor& other) : OwnedTensor(other.tensor_.shape(), other.tensor_.dtype()) {
    bytes_ = other.bytes_;
    tensor_ = Tensor(bytes_.data(), tensor_.dtype(), tensor_.shape());
  }
  OwnedTensor& operator=(const OwnedTensor&) = delete;

  operator const Tensor&() const { return tensor_; }
  const Tensor* operator->() const { return &tensor_; }
  const Tensor& operator*() const { return tensor_; }
  double at(std::int64_t i) const {
    return tensor_.dtype() == Dtype::f64   ? tensor_.as<double>()[i]
           : tensor_.dtype() == Dtype::f32 ? static_cast<double>(tensor_.as<float>()[i])
                                           : static_cast<double>(tensor_.as<std::uint8_t>()[i]);
  }
  void set(std::int64_t i, double value) {
    if (tensor_.dtype() == Dtype::f64) tensor_.as<double>()[i] = value;
    if (tensor_.dtype() == Dtype::f32) tensor_.as<float>()[i] = static_cast<float>(value);
    if (tensor_.dtype() == Dtype::u8) tensor_.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(value);
  }
  bool operator==(const OwnedTensor& other) const { return bytes_ == other.bytes_; }  // bit for bit

 private:
  std::vector<std::byte> bytes_;
  Tensor tensor_;
};

inline OwnedTensor zeros(const Shape& shape, Dtype dtype) { return OwnedTensor(shape, dtype); }

// Normal numbers, rounded to fp32 so that an f32 and an f64 tensor with the same `sequence` hold the same values.
inline OwnedTensor normals(const Shape& shape, Dtype dtype, std::uint32_t sequence, double deviation = 1) {
  OwnedTensor t(shape, dtype);
  for (std::int64_t i = 0; i < shape.count(); ++i)
    t.set(i, static_cast<float>(deviation *
                                kernels::normal_of(kernels::philox(7, static_cast<std::uint64_t>(i), sequence,
                                                                   kernels::domain_of(kernels::Purpose::test, 0)))));
  return t;
}

// Bytes below `limit`.
inline OwnedTensor tokens(const Shape& shape, std::uint32_t sequence, std::uint32_t limit = 256) {
  OwnedTensor t(shape, Dtype::u8);
  for (std::int64_t i = 0; i < shape.count(); ++i)
    t.set(i, kernels::philox(7, static_cast<std::uint64_t>(i), sequence, kernels::domain_of(kernels::Purpose::test, 1))
                     .word[0] %
                 limit);
  return t;
}

inline double dot(const OwnedTensor& a, const OwnedTensor& b) {
  double total = 0;
  for (std::int64_t i = 0; i < a->count(); ++i) total += a.at(i) * b.at(i);
  return total;
}

// A context with its own arena.
class TestContext : public Context {
 public:
  explicit TestContext(std::size_t bytes = std::size_t{64} << 20)
      : memory_(new std::byte[bytes]), owned_(memory_.get(), bytes) {
    arena = &owned_;
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  Arena owned_;
};

// The largest |found - expected|, and the largest |expected|.
struct Difference {
  double error = 0, magnitude = 0;
};
inline Difference difference(const OwnedTensor& found, const OwnedTensor& expected) {
  Difference d;
  for (std::int64_t i = 0; i < expected->count(); ++i) {
    const double e = std::abs(found.at(i) - expected.at(i));
    d.error = e > d.error || std::isnan(e) ? e : d.error;
    d.magnitude = std::max(d.magnitude, std::abs(expected.at(i)));
  }
  return d;
}

}  // namespace longstride::testing
