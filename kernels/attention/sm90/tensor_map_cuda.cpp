#include "kernels/attention/sm90/tensor_map.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace longstride::kernels::cuda::sm90 {
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

CUtensorMap encoded(const Tensor& view, std::int64_t offsets, std::int64_t periods, std::int64_t period, BoxShape box,
                    std::int32_t columns) {
  const auto bytes = [&](std::int64_t elements) { return static_cast<cuuint64_t>(elements) * bytes_of(view.dtype()); };
  const cuuint64_t size[5] = {static_cast<cuuint64_t>(view.size(3)), static_cast<cuuint64_t>(view.size(2)),
                              static_cast<cuuint64_t>(offsets), static_cast<cuuint64_t>(periods),
                              static_cast<cuuint64_t>(view.size(0))};
  const cuuint64_t stride[4] = {bytes(view.stride(2)), bytes(view.stride(1)), bytes(view.stride(1) * period),
                                bytes(view.stride(0))};
  const auto extent = [](std::int32_t x) { return static_cast<cuuint32_t>(x); };
  const cuuint32_t boxes[5] = {extent(std::min(columns, 64)), 1, extent(box.offsets), extent(box.periods), 1};
  const cuuint32_t step[5] = {1, 1, 1, 1, 1};
  const CUtensorMapSwizzle swizzle = columns >= 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : columns >= 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                     : CU_TENSOR_MAP_SWIZZLE_32B;
  CUtensorMap map;
  const CUresult result =
      encoder()(&map, type_of(view.dtype()), 5, view.data(), size, stride, boxes, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw std::runtime_error("cuTensorMapEncodeTiled: error " + std::to_string(static_cast<int>(result)));
  return map;
}

}  // namespace

RowMaps row_maps(const Tensor& view, const RowSet& set, std::int32_t n, std::int32_t rows, std::int32_t columns) {
  const BoxShape box = box_of(set, rows);
  RowMaps maps;
  if (set.run >= set.period) {
    maps.complete = maps.longer = encoded(view, n, 1, n, box, columns);
    return maps;
  }
  const std::int32_t periods = std::max(n / set.period, 1);
  maps.complete = maps.longer = encoded(view, set.period, periods, set.period, box, columns);
  maps.rest = set.run == 1 ? n % set.period : 0;
  if (maps.rest > 0) maps.longer = encoded(view, maps.rest, n / set.period + 1, set.period, box, columns);
  return maps;
}

}  // namespace longstride::kernels::cuda::sm90
