#include "kernels/base/tensor.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace longstride::kernels {

Shape::Shape(std::initializer_list<std::int64_t> sizes) {
  LONGSTRIDE_CHECK(sizes.size() <= max_rank, "{} dimensions", sizes.size());
  for (std::int64_t s : sizes) size[rank++] = s;
}

std::int64_t Shape::count() const {
  std::int64_t n = rank > 0 ? 1 : 0;
  for (int d = 0; d < rank; ++d) n *= size[d];
  return n;
}

bool Shape::operator==(const Shape& other) const {
  return rank == other.rank && std::equal(size, size + rank, other.size);
}

std::string Shape::text() const {
  std::string out = "(";
  for (int d = 0; d < rank; ++d) out += (d ? ", " : "") + std::to_string(size[d]);
  return out + ")";
}

Tensor::Tensor(void* data, Dtype dtype, const Shape& shape) : data_(data), dtype_(dtype), rank_(shape.rank) {
  std::int64_t stride = 1;
  for (int d = rank_ - 1; d >= 0; --d) {
    size_[d] = shape[d];
    stride_[d] = stride;
    stride *= shape[d];
  }
}

Tensor::Tensor(void* data, Dtype dtype, const Shape& shape, const Shape& strides) : Tensor(data, dtype, shape) {
  LONGSTRIDE_CHECK(strides.rank == rank_, "strides {} of {}", strides.text(), shape.text());
  std::copy_n(strides.size, rank_, stride_);
}

Shape Tensor::shape() const {
  Shape s;
  s.rank = rank_;
  std::copy_n(size_, rank_, s.size);
  return s;
}

bool Tensor::contiguous() const {
  std::int64_t expected = 1;
  for (int d = rank_ - 1; d >= 0; --d) {
    if (size_[d] != 1 && stride_[d] != expected) return false;
    expected *= size_[d];
  }
  return true;
}

Tensor Tensor::reshape(const Shape& shape) const {
  LONGSTRIDE_CHECK(contiguous() && shape.count() == count(), "reshape {} to {}", this->shape().text(), shape.text());
  return Tensor(data_, dtype_, shape);
}

Tensor Tensor::rows() const {
  LONGSTRIDE_CHECK(given() && (size(-1) == 1 || stride(-1) == 1), "{} has a strided last dimension", shape().text());
  Tensor out(data_, dtype_, {1, size(-1)});
  bool spaced = false;
  for (int d = rank_ - 2; d >= 0; --d) {
    if (size_[d] == 1) continue;
    LONGSTRIDE_CHECK(!spaced || stride_[d] == out.stride_[0] * out.size_[0], "{} does not fold into rows",
                     shape().text());
    if (!spaced) out.stride_[0] = stride_[d];
    spaced = true;
    out.size_[0] *= size_[d];
  }
  return out;
}

Tensor Tensor::slice(int d, std::int64_t begin, std::int64_t end) const {
  if (d < 0) d += rank_;
  LONGSTRIDE_CHECK(0 <= begin && begin <= end && end <= size_[d], "slice [{}, {}) of dimension {} of {}", begin, end, d,
                   shape().text());
  Tensor out = *this;
  out.size_[d] = end - begin;
  if (data_ != nullptr)
    out.data_ = static_cast<char*>(data_) + begin * stride_[d] * static_cast<std::int64_t>(bytes_of(dtype_));
  return out;
}

Tensor Tensor::split_last(std::int64_t outer, std::int64_t inner) const {
  const int d = rank_ - 1;
  LONGSTRIDE_CHECK(rank_ < Shape::max_rank && stride_[d] == 1 && size_[d] == outer * inner,
                   "split the last dimension of {} into {} x {}", shape().text(), outer, inner);
  Tensor out = *this;
  out.rank_ = rank_ + 1;
  out.size_[d] = outer;
  out.stride_[d] = inner;
  out.size_[d + 1] = inner;
  out.stride_[d + 1] = 1;
  return out;
}

Tensor Tensor::transposed() const {
  LONGSTRIDE_CHECK(rank_ >= 2, "{} transposed", shape().text());
  Tensor out = *this;
  std::swap(out.size_[rank_ - 2], out.size_[rank_ - 1]);
  std::swap(out.stride_[rank_ - 2], out.stride_[rank_ - 1]);
  return out;
}

}  // namespace longstride::kernels
