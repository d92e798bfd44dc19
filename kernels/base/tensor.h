// A tensor is a view with a shape: pointer, element type, sizes and strides (in elements), at most four dimensions. It
// owns nothing. Memory comes from an Arena or from a flat buffer; while planning (see Arena) the pointer is null.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "kernels/base/dtype.h"

namespace longstride::kernels {

// Extents, row-major.
struct Shape {
  static constexpr int max_rank = 4;
  int rank = 0;
  std::int64_t size[max_rank] = {};

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes);
  std::int64_t count() const;
  std::int64_t operator[](int d) const { return size[d]; }
  bool operator==(const Shape& other) const;
  std::string text() const;  // "(4, 12288, 512)"
};

class Tensor {
 public:
  Tensor() = default;                                   // absent: an optional argument that was not given
  Tensor(void* data, Dtype dtype, const Shape& shape);  // contiguous
  Tensor(void* data, Dtype dtype, const Shape& shape, const Shape& strides);

  bool given() const { return rank_ > 0; }
  int rank() const { return rank_; }
  // The size of dimension d; negative d counts from the last.
  std::int64_t size(int d) const { return size_[index(d)]; }
  std::int64_t stride(int d) const { return stride_[index(d)]; }
  std::int64_t count() const {
    std::int64_t n = rank_ > 0 ? 1 : 0;
    for (int d = 0; d < rank_; ++d) n *= size_[d];
    return n;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(count()) * bytes_of(dtype_); }
  Dtype dtype() const { return dtype_; }
  Shape shape() const;
  bool contiguous() const;

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

  // The same elements with another shape of equal count. Requires a contiguous tensor.
  Tensor reshape(const Shape& shape) const;
  // All dimensions but the last folded into one: (rows, width). Requires a dense last dimension and equally spaced
  // leading dimensions, as in any contiguous tensor or a slice of its last dimension.
  Tensor rows() const;
  // Elements [begin, end) of dimension d; a strided view.
  Tensor slice(int d, std::int64_t begin, std::int64_t end) const;
  // The last dimension split into (outer, inner); works on a strided view whose last dimension is dense.
  Tensor split_last(std::int64_t outer, std::int64_t inner) const;
  // The last two dimensions swapped.
  Tensor transposed() const;

 private:
  // The mask has no effect on a valid dimension, but tells the compiler that the index is within the array.
  int index(int d) const { return (d < 0 ? d + rank_ : d) & (Shape::max_rank - 1); }

  void* data_ = nullptr;
  Dtype dtype_ = Dtype::f32;
  int rank_ = 0;
  std::int64_t size_[Shape::max_rank] = {};
  std::int64_t stride_[Shape::max_rank] = {};
};

// Calls f(T{}) with the type T of `dtype`, which must be a floating type that the CPU computes in.
template <class F>
void with_float_type(Dtype dtype, F&& f) {
  if (dtype == Dtype::f64)
    f(double{});
  else
    f(float{});
}

}  // namespace longstride::kernels
