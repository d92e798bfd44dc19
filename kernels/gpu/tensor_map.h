// Descriptions of tensors that the TMA copies boxes of (tma.cuh), made on the host and passed as kernel parameters.
#pragma once
#include <cuda.h>

#include <cstdint>

#include "kernels/base/tensor.h"

namespace longstride::kernels::cuda {

// Columns of a box: a row of 128 bytes, the widest swizzle.
inline constexpr std::int32_t most_box_columns = 64;

// A 5-D tensor of 16-bit elements, the dimension of neighbours in memory first. Boxes have min(columns, 64) elements of
// that dimension, in shared memory rows of 32, 64 or 128 bytes with the swizzle of that size, and `box` of the others.
// Elements beyond the tensor are read as zero and not written. data and strides are multiples of 16 bytes.
struct TensorMapShape {
  std::int64_t size[5];
  std::int64_t stride[4];  // dimensions from the second on, in elements
  std::int32_t columns;
  std::int32_t box[4];  // dimensions from the second on
};
CUtensorMap tensor_map(void* data, Dtype dtype, const TensorMapShape& shape);

// Boxes of `rows` x 64 elements of a row-major matrix, at matrix_coordinates (tma.cuh).
CUtensorMap matrix_map(const Tensor& matrix, std::int32_t rows);

}  // namespace longstride::kernels::cuda
