#include "framework/core/tensor.h"

#include "framework/core/errors.h"

namespace longstride {

Shape::Shape(std::initializer_list<std::int64_t> sizes) {
  LONGSTRIDE_CHECK(sizes.size() <= kernels::View::max_rank, "{} dimensions", sizes.size());
  for (std::int64_t s : sizes) size[rank++] = s;
}

std::int64_t Shape::count() const {
  std::int64_t n = rank > 0 ? 1 : 0;
  for (int d = 0; d < rank; ++d) n *= size[d];
  return n;
}

bool Shape::operator==(const Shape& other) const {
  if (rank != other.rank) return false;
  for (int d = 0; d < rank; ++d)
    if (size[d] != other.size[d]) return false;
  return true;
}

std::string Shape::text() const {
  std::string out = "(";
  for (int d = 0; d < rank; ++d) out += (d ? ", " : "") + std::to_string(size[d]);
  return out + ")";
}

Tensor::Tensor(void* data, Dtype dtype, const Shape& shape) {
  view_.data = data;
  view_.dtype = dtype;
  view_.rank = shape.rank;
  std::int64_t stride = 1;
  for (int d = shape.rank - 1; d >= 0; --d) {
    view_.size[d] = shape.size[d];
    view_.stride[d] = stride;
    stride *= shape.size[d];
  }
}

Shape Tensor::shape() const {
  Shape s;
  s.rank = view_.rank;
  for (int d = 0; d < view_.rank; ++d) s.size[d] = view_.size[d];
  return s;
}

bool Tensor::contiguous() const {
  std::int64_t expected = 1;
  for (int d = view_.rank - 1; d >= 0; --d) {
    if (view_.size[d] != 1 && view_.stride[d] != expected) return false;
    expected *= view_.size[d];
  }
  return true;
}

Tensor Tensor::reshape(const Shape& shape) const {
  LONGSTRIDE_CHECK(contiguous() && shape.count() == count(), "reshape {} to {}", this->shape().text(), shape.text());
  return Tensor(view_.data, view_.dtype, shape);
}

Tensor Tensor::rows() const { return reshape({count() / size(-1), size(-1)}); }

Tensor Tensor::slice(int d, std::int64_t begin, std::int64_t end) const {
  if (d < 0) d += view_.rank;
  LONGSTRIDE_CHECK(0 <= begin && begin <= end && end <= view_.size[d], "slice [{}, {}) of dimension {} of {}", begin,
                   end, d, shape().text());
  Tensor out = *this;
  out.view_.size[d] = end - begin;
  if (view_.data != nullptr)
    out.view_.data =
        static_cast<char*>(view_.data) + begin * view_.stride[d] * static_cast<std::int64_t>(bytes_of(dtype()));
  return out;
}

Tensor Tensor::split_last(std::int64_t outer, std::int64_t inner) const {
  const int d = view_.rank - 1;
  LONGSTRIDE_CHECK(view_.rank < kernels::View::max_rank && view_.stride[d] == 1 && view_.size[d] == outer * inner,
                   "split the last dimension of {} into {} x {}", shape().text(), outer, inner);
  Tensor out = *this;
  out.view_.rank = view_.rank + 1;
  out.view_.size[d] = outer;
  out.view_.stride[d] = inner;
  out.view_.size[d + 1] = inner;
  out.view_.stride[d + 1] = 1;
  return out;
}

}  // namespace longstride
