// Shared by the kernels of features: what they are told, and products with the projection. A block has 128 rows of a
// head, whose f32 projection takes part in 16-bit products as a sum of two numbers: of a rounded one alone the error
// would be as large as the rounding of x times the exponents.
#pragma once
#include "kernels/base/cuda_launch.cuh"
#include "kernels/features/feature_call.cuh"
#include "kernels/scan/chunk_rows.cuh"

namespace longstride::kernels::cuda::scanning {

// Rows of the projection that take part in a product at a time.
inline constexpr int weight_rows = 64;

template <class T>
struct FeatureMemory {
  static constexpr std::size_t rows_tile = 0, high = tile_bytes<T, slice<T>>(rows),
                               low = high + tile_bytes<T, slice<T>>(weight_rows),
                               numbers = low + (sizeof(T) == 2 ? tile_bytes<T, slice<T>>(weight_rows) : 0),
                               other = numbers + 2 * sizeof(float) * rows, bytes = other + tile_bytes<T, 64>(rows);
};

// The block's part of the projection.
template <class T>
struct Weights {
  const Keys<T> high{reinterpret_cast<T*>(memory + FeatureMemory<T>::high)},
      low{reinterpret_cast<T*>(memory + FeatureMemory<T>::low)};

  // Rows [first, +64) and channels of `columns`, zeros beyond. Called by the whole block, like all below.
  __device__ void load(const FeatureCall& call, const Place& place, int first, const Columns& columns) const {
    const float* from = call.projection + static_cast<std::int64_t>(place.head % call.projections) * call.m * call.d;
    for (int i = this_thread(); i < weight_rows * slice<T>; i += threads) {
      const int row = i / slice<T>, c = i % slice<T>;
      const bool there = first + row < call.m && c < columns.count;
      const float w = there ? from[static_cast<std::int64_t>(first + row) * call.d + columns.first + c] : 0.0f;
      high.set(row, c, w);
      if constexpr (sizeof(T) == 2) low.set(row, c, w - high(row, c));
    }
  }
  // The strip's rows of x times the transpose.
  __device__ void add(Strip<4>& sum, Keys<T> x, int padded) const {
    add_product(sum, x, this_warp() * 16, Across<Keys<T>>{high}, 0, 4, 0, padded);
    if constexpr (sizeof(T) == 2) add_product(sum, x, this_warp() * 16, Across<Keys<T>>{low}, 0, 4, 0, padded);
  }
  // The strip's rows of g, a column per row of the projection, times it.
  __device__ void add_back(Strip<slice<T> / 16>& sum, Tile<T, 64> g, int padded) const {
    add_product(sum, g, this_warp() * 16, high, 0, padded / 16, 0, weight_rows);
    if constexpr (sizeof(T) == 2) add_product(sum, g, this_warp() * 16, low, 0, padded / 16, 0, weight_rows);
  }
};

inline __device__ Columns channels_of(const FeatureCall& call, int first, int most) {
  return {first, min(most, call.d - first)};
}

}  // namespace longstride::kernels::cuda::scanning
