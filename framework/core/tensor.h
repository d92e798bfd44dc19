// A tensor is a view with a shape: it owns nothing. Memory comes from an Arena or from a flat buffer.
// While planning (see Arena) tensors carry shapes and strides but a null pointer.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>

#include "kernels/base/view.h"

namespace longstride {

using kernels::bytes_of;
using kernels::Dtype;

// Up to four extents, row-major.
struct Shape {
  int rank = 0;
  std::int64_t size[kernels::View::max_rank] = {};

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes);
  std::int64_t count() const;
  std::int64_t operator[](int d) const { return size[d]; }
  bool operator==(const Shape& other) const;
  std::string text() const;  // "(4, 12288, 512)"
};

class Tensor {
 public:
  Tensor() = default;                                   // absent
  Tensor(void* data, Dtype dtype, const Shape& shape);  // contiguous

  bool given() const { return view_.rank > 0; }
  int rank() const { return view_.rank; }
  std::int64_t size(int d) const { return view_.size[d < 0 ? d + view_.rank : d]; }
  std::int64_t stride(int d) const { return view_.stride[d < 0 ? d + view_.rank : d]; }
  std::int64_t count() const { return view_.count(); }
  std::size_t bytes() const { return static_cast<std::size_t>(count()) * bytes_of(dtype()); }
  Dtype dtype() const { return view_.dtype; }
  Shape shape() const;
  bool contiguous() const;

  void* data() const { return view_.data; }
  template <class T>
  T* as() const {
    return static_cast<T*>(view_.data);
  }
  const kernels::View& view() const { return view_; }

  // The same elements under another shape of equal count. Needs a contiguous tensor.
  Tensor reshape(const Shape& shape) const;
  // All dimensions but the last folded into one: (rows, width). Needs a contiguous tensor.
  Tensor rows() const;
  // Elements [begin, end) of dimension d; a strided view.
  Tensor slice(int d, std::int64_t begin, std::int64_t end) const;
  // The last dimension split into (outer, inner); works on a strided view whose last dimension is dense.
  Tensor split_last(std::int64_t outer, std::int64_t inner) const;

 private:
  kernels::View view_;
};

}  // namespace longstride
