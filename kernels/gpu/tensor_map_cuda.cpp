#include "kernels/gpu/tensor_map.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace longstride::kernels::cuda {
namespace {

// A function of the driver, which a machine without a GPU may lack: looked up at the first use instead of linked.
auto encoder() {
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess)
      throw std::runtime_error("the CUDA driver has no cuTensorMapEncodeTiled; it is older than CUDA 12");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  return encode;
}

CUtensorMapDataType type_of(Dtype dtype) {
  return dtype == Dtype::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
}

// Gives this thread the context of its GPU. A thread whose first call of CUDA is one of the driver has none: PyTorch's
// for gradients, for example. May be called while a stream is captured.
void enter_context() {
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaSetDevice(device);
  if (error != cudaSuccess) throw std::runtime_error(std::string("no GPU can be used: ") + cudaGetErrorString(error));
}

}  // namespace

CUtensorMap tensor_map(void* data, Dtype dtype, const TensorMapShape& shape) {
  cuuint64_t size[5], stride[4];
  cuuint32_t box[5] = {static_cast<cuuint32_t>(std::min(shape.columns, most_box_columns))};
  for (int i = 0; i < 5; ++i) size[i] = static_cast<cuuint64_t>(shape.size[i]);
  for (int i = 0; i < 4; ++i) {
    stride[i] = static_cast<cuuint64_t>(shape.stride[i]) * bytes_of(dtype);
    box[i + 1] = static_cast<cuuint32_t>(shape.box[i]);
  }
  const cuuint32_t step[5] = {1, 1, 1, 1, 1};
  const CUtensorMapSwizzle swizzle = shape.columns >= 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : shape.columns >= 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                           : CU_TENSOR_MAP_SWIZZLE_32B;
  CUtensorMap map;
  const auto encode = [&] {
    return encoder()(&map, type_of(dtype), 5, data, size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CUresult result = encode();
  if (result == CUDA_ERROR_INVALID_CONTEXT) {
    enter_context();
    result = encode();
  }
  if (result != CUDA_SUCCESS)
    throw std::runtime_error("cuTensorMapEncodeTiled: error " + std::to_string(static_cast<int>(result)));
  return map;
}

// The copies that kernels use have five dimensions; a matrix fills three of them with one element each.
CUtensorMap matrix_map(const Tensor& matrix, std::int32_t rows) {
  const std::int64_t whole = matrix.stride(0) * matrix.size(0);
  return tensor_map(matrix.data(), matrix.dtype(),
                    {.size = {matrix.size(1), 1, matrix.size(0), 1, 1},
                     .stride = {matrix.stride(0), matrix.stride(0), whole, whole},
                     .columns = most_box_columns,
                     .box = {1, rows, 1, 1}});
}

}  // namespace longstride::kernels::cuda
