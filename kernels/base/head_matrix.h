// Rows of (batch, n, heads, size) views as kernels for GPUs read them.
#pragma once
#include <cstdint>

#include "kernels/base/tensor.h"

namespace longstride::kernels::cuda {

// Such a view's place in memory; null without one.
struct HeadMatrix {
  void* data = nullptr;
  std::int64_t batch = 0, row = 0, head = 0;  // strides in elements

  HeadMatrix() = default;
  explicit HeadMatrix(const Tensor& v)
      : data(v.data()),
        batch(v.given() ? v.stride(0) : 0),
        row(v.given() ? v.stride(1) : 0),
        head(v.given() ? v.stride(2) : 0) {}

  // TMA steps by strides, also of a dimension of one.
  bool has_strides() const { return batch > 0 && row > 0 && head > 0; }
};

// True if every row begins at a multiple of 16 bytes and has a multiple of as many.
inline bool rows_on_16_bytes(const Tensor& v) {
  const auto bytes = [&](std::int64_t elements) { return elements * static_cast<std::int64_t>(bytes_of(v.dtype())); };
  bool aligned = reinterpret_cast<std::uintptr_t>(v.data()) % 16 == 0 && bytes(v.size(-1)) % 16 == 0;
  for (int d = 0; d < v.rank() - 1; ++d) aligned &= bytes(v.stride(d)) % 16 == 0;
  return aligned;
}

}  // namespace longstride::kernels::cuda
