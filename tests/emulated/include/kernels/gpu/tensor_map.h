// Stands in for the kernels' header of this name where their source is compiled for the CPU
// (tests/emulated/machine/block.h).
#pragma once
#include <cuda.h>

#include <algorithm>
#include <cstdint>

#include "kernels/base/tensor.h"

namespace longstride::kernels::cuda {

inline constexpr std::int32_t most_box_columns = 64;
struct TensorMapShape {
  std::int64_t size[5];
  std::int64_t stride[4];
  std::int32_t columns;
  std::int32_t box[4];
};
inline CUtensorMap tensor_map(void* data, Dtype, const TensorMapShape& shape) {
  CUtensorMap map{data, {}, {}, std::min(shape.columns, most_box_columns), {}};
  std::copy(shape.size, shape.size + 5, map.size);
  std::copy(shape.stride, shape.stride + 4, map.stride);
  std::copy(shape.box, shape.box + 4, map.box);
  return map;
}
inline CUtensorMap matrix_map(const Tensor& matrix, std::int32_t rows) {
  const std::int64_t whole = matrix.stride(0) * matrix.size(0);
  return tensor_map(matrix.data(), matrix.dtype(),
                    {{matrix.size(1), 1, matrix.size(0), 1, 1},
                     {matrix.stride(0), matrix.stride(0), whole, whole},
                     most_box_columns,
                     {1, rows, 1, 1}});
}

}  // namespace longstride::kernels::cuda
