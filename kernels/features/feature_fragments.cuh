// Features of 16-bit rows: the projection stays in a block's shared memory, in the order in which the tensor cores read
// it, while warps stream rows past it, 32 at a time, from global memory to registers. The order of a product's depth is
// free, so that a lane has eight neighbours: depth 32 g + 8 q + 4 s + e of lane q of a quad takes part in step s of
// group g as the columns 2 q + {0, 1} and 2 q + 8 + {0, 1} of fragment.cuh.
#pragma once
#include "kernels/base/cuda_launch.cuh"
#include "kernels/features/feature_call.cuh"
#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/mma.cuh"

namespace longstride::kernels::cuda::scanning {

extern __shared__ char memory[];

namespace fragments {

inline constexpr int block_threads = 256, strips = 2, rows_of_warp = 16 * strips,
                     rows_of_block = rows_of_warp * (block_threads / warp_threads), depth = 32, block_columns = 8;

// Where a block is: positions [first, first + count) of a unit.
struct RowPlace {
  int unit, sequence, head, first, count;

  __device__ RowPlace(const FeatureCall& call, int task, int tasks_of_unit)
      : unit(task / tasks_of_unit),
        sequence(unit / call.heads),
        head(unit % call.heads),
        first(task % tasks_of_unit * rows_of_block + this_warp() * rows_of_warp),
        count(min(rows_of_warp, call.n - first)) {}
  template <class T>
  __device__ T* rows_of(const HeadMatrix& x) const {
    return static_cast<T*>(x.data) + sequence * x.batch + head * x.head + first * x.row;
  }
};

// A matrix (rows of the depth, columns) as right operands: of each block of columns and group of depth a word per lane,
// the rounded numbers and then what rounding has left.
template <class T>
struct Weights {
  uint4* words;
  int groups, blocks;

  __device__ uint4 word(int block, int group, bool low) const {
    return words[((low ? blocks : 0) + block) * groups * warp_threads + group * warp_threads + this_lane()];
  }
  // An element is of(depth, column), 0 beyond.
  template <class F>
  __device__ void set(F&& of) const {
    for (int i = this_thread(); i < blocks * groups * warp_threads; i += block_threads) {
      const int lane = i % warp_threads, group = i / warp_threads % groups, block = i / warp_threads / groups,
                column = block * block_columns + lane / 4, first = group * depth + lane % 4 * 8;
      std::uint32_t high[4], low[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float x = of(first + 2 * j, column), y = of(first + 2 * j + 1, column);
        high[j] = pack<T>(x, y);
        const float2 rounded = unpack<T>(high[j]);
        low[j] = pack<T>(x - rounded.x, y - rounded.y);
      }
      words[i] = make_uint4(high[0], high[1], high[2], high[3]);
      words[blocks * groups * warp_threads + i] = make_uint4(low[0], low[1], low[2], low[3]);
    }
  }
};
constexpr std::size_t bytes_of_weights(int rows_of_depth, int columns) {
  return 2 * sizeof(std::uint16_t) * static_cast<std::size_t>(rows_of_depth * columns);
}

// Eight neighbours of the strip's rows lane / 4 and + 8, as left operands of two steps.
struct Words {
  uint4 low, high;
};
template <class T>
__device__ __forceinline__ void multiply(float (&d)[4], const Words& a, const uint4& b) {
  multiply_add<T>(d, {a.low.x, a.high.x, a.low.y, a.high.y}, b.x, b.y);
  multiply_add<T>(d, {a.low.z, a.high.z, a.low.w, a.high.w}, b.z, b.w);
}
template <class T>
__device__ __forceinline__ Words load_words(const T* rows_of_place, std::int64_t stride, int strip, int column,
                                            int size, int count) {
  const int row = strip * 16 + this_lane() / 4, c = column + this_lane() % 4 * 8;
  const auto word = [&](int r) {
    return r < count && c < size ? *reinterpret_cast<const uint4*>(rows_of_place + r * stride + c)
                                 : make_uint4(0, 0, 0, 0);
  };
  return {word(row), word(row + 8)};
}

// Launches as many blocks as run at once; f(task) for the tasks of this one, in order.
inline int tasks_of_unit(const FeatureCall& call) { return (call.n + rows_of_block - 1) / rows_of_block; }
inline int blocks_of(const FeatureCall& call, std::size_t bytes) {
  constexpr int multiprocessors_of_h200 = 132;
  const int at_once = multiprocessors_of_h200 * (bytes <= 112 * 1024 ? 2 : 1);
  return std::min(call.units * tasks_of_unit(call), at_once);
}
// The block's share of the tasks. set_weights(head) whenever the projection is another.
template <class W, class F>
__device__ inline void each_task(const FeatureCall& call, int tasks_of_each, W&& set_weights, F&& f) {
  const std::int64_t tasks = static_cast<std::int64_t>(call.units) * tasks_of_each, blocks = gridDim.x;
  const auto begin = static_cast<int>(tasks * blockIdx.x / blocks),
             end = static_cast<int>(tasks * (blockIdx.x + 1) / blocks);
  int there = -1;
#pragma unroll 1
  for (int task = begin; task < end; ++task) {
    const RowPlace place(call, task, tasks_of_each);
    if (const int head = place.head % call.projections; head != there) {
      __syncthreads();
      set_weights(head);
      __syncthreads();
      there = head;
    }
    if (place.count > 0) f(place);
  }
}

}  // namespace fragments
}  // namespace longstride::kernels::cuda::scanning
