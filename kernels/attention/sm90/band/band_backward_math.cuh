// Shared by the backward kernels of a band: the products of a pair of tiles, the statistics of a query tile, and
// the transfer of the partial dQ between shared memory and registers.
#pragma once
#include <algorithm>

#include "kernels/attention/sm90/band/band_backward_problem.h"
#include "kernels/attention/sm90/general/backward_store.cuh"
#include "kernels/base/approximate.cuh"
#include "kernels/base/cuda_types.cuh"
#include "kernels/gpu/barrier.cuh"
#include "kernels/gpu/fragment.cuh"
#include "kernels/gpu/lane.cuh"
#include "kernels/gpu/ring.cuh"
#include "kernels/gpu/shared.cuh"
#include "kernels/gpu/tma.cuh"
#include "kernels/gpu/wgmma.cuh"

namespace longstride::kernels::cuda::sm90 {

// Problem: BandBackwardProblem or a type derived from it.
template <class T, int KeySize, int ValueSize, class Problem>
struct BandBackward {
  static constexpr int threads = 128, rows = band_rows;
  static constexpr int key_row = std::min(KeySize, 64) * 2, value_row = std::min(ValueSize, 64) * 2;
  static constexpr int key_boxes = (KeySize + 63) / 64, value_boxes = (ValueSize + 63) / 64;
  static constexpr int key_bytes = rows * KeySize * 2, value_bytes = rows * ValueSize * 2;
  static constexpr int tile_bytes = key_bytes + value_bytes, ds_bytes = rows * rows * 2, dq_bytes = rows * KeySize * 4;

  // Per query of a tile: -log2(e) lse, or -infinity beyond the row set, and delta.
  struct Statistics {
    float shift[rows], delta[rows];
  };

  const Problem& problem;
  char* const shared;
  const int thread, lane = thread % 32;               // thread of the warpgroup
  const int warp = __shfl_sync(~0u, thread / 32, 0);  // uniform, as the compiler can tell
  // Blocks on one multiprocessor load with different warps, because the loading warp has more work.
  const bool loads = thread == static_cast<int>(blockIdx.x / 128 % 4 * 32);

  __device__ BandBackward(const Problem& p, char* memory, int thread_of_warpgroup = this_thread())
      : problem(p), shared(memory), thread(thread_of_warpgroup) {}

  // True if a phase is complete, for every lane of the warp, so that every lane may read what has arrived.
  __device__ static bool passed(std::uint64_t* barrier, std::uint32_t parity) {
    return __all_sync(~0u, barrier_passed_now(barrier, parity));
  }

  // ---- Statistics of a query tile: two threads per row ----

  struct OutputRow {
    static constexpr int count = ValueSize / 16;
    uint4 o[count];
    float lse;
  };
  // For the tile that begins with this entry.
  __device__ OutputRow read_output(const BandBackwardTask& task, std::int32_t first_entry) const {
    OutputRow row;
    const std::int32_t entry = first_entry + thread / 2;
    const bool there = entry < task.length;
    const std::int64_t position = there ? task.position(entry) : 0;
    const Gradient& output = problem.output;
    const T* const from = static_cast<const T*>(output.data) + task.sequence * output.stride[0] +
                          position * output.stride[1] + task.head * output.stride[2];
#pragma unroll
    for (int i = 0; i < OutputRow::count; ++i) {
      const int column = (thread % 2 * OutputRow::count + i) * 8;
      row.o[i] = there && column < output.size ? __ldg(reinterpret_cast<const uint4*>(from + column)) : uint4{};
    }
    const std::int64_t first = (static_cast<std::int64_t>(task.sequence) * problem.heads + task.head) * problem.n;
    row.lse = there ? __ldg(problem.lse + first + position) : __builtin_huge_valf();
    return row;
  }
  __device__ void write_statistics(const OutputRow& row, const char* dout, Statistics& to) const {
    const int r = thread / 2;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < OutputRow::count; ++i) {
      const int chunk = thread % 2 * OutputRow::count + i, box = chunk / 8;
      const int within = r * value_row + chunk % 8 * 16;
      const uint4 y = *reinterpret_cast<const uint4*>(dout + box * rows * value_row +
                                                      (within ^ (within >> 7) % (value_row / 16) * 16));
      const std::uint32_t a[4] = {row.o[i].x, row.o[i].y, row.o[i].z, row.o[i].w}, b[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float2 left = unpack<T>(a[e]), right = unpack<T>(b[e]);
        sum = fmaf(left.x, right.x, fmaf(left.y, right.y, sum));
      }
    }
    sum += __shfl_xor_sync(~0u, sum, 1);
    if (thread % 2 == 0)
      to.shift[r] = row.lse * -log2_e;
    else
      to.delta[r] = sum;
  }

  // ---- Products ----

  // gradient += weights tile, the weights in registers.
  template <int Size>
  __device__ static void add_product(float (&gradient)[Size / 2], const std::uint32_t (&weights)[4][4],
                                     const char* tile) {
    constexpr int row_bytes = std::min(Size, 64) * 2;
    const std::uint64_t b = descriptor<row_bytes>(tile, rows * row_bytes);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) wgmma<T, Size, true>(gradient, weights[i], advanced(b, i * 16 * row_bytes), true);
    wgmma_commit();
  }
  // dq = dS k, or +=; dS (queries, keys) from shared memory.
  __device__ static void add_query_gradient(float (&dq)[KeySize / 2], const char* ds, const char* keys, bool adds) {
    const std::uint64_t a = descriptor<128>(ds), b = descriptor<key_row>(keys, rows * key_row);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      wgmma<T, KeySize, true>(dq, advanced(a, i * 32), advanced(b, i * 16 * key_row), adds || i > 0);
    wgmma_commit();
  }

  // ---- Visibility ----

  // The queries that see the thread's two keys, and those that see the warp's first and last key, in entries.
  struct Seen {
    std::int32_t end[2], first, first_end, last_end;
  };
  __device__ Seen seen_of(std::int32_t tile) const {
    const std::int32_t first = tile * rows + warp * 16, own = first + lane / 4;
    const BandShape& shape = problem.shape;
    return {{shape.beyond(own), shape.beyond(own + 8)}, first, shape.beyond(first), shape.beyond(first + 15)};
  }

  // ---- dS and dQ through shared memory ----

  // Stores dS^T from registers as (queries, keys) in shared memory. Products may read it after proxy_fence.
  __device__ void put_ds(char* ds, const std::uint32_t (&a)[4][4]) const {
    const int matrix = lane / 8, row = matrix / 2 * 8 + lane % 8, chunk = (2 * warp + matrix % 2) ^ lane % 8;
#pragma unroll
    for (int i = 0; i < 4; ++i) store_matrices_transposed(ds + (16 * i + row) * 128 + chunk * 16, a[i]);
  }
  __device__ void write_ds(char* ds, const std::uint32_t (&a)[4][4]) const {
    put_ds(ds, a);
    proxy_fence();
  }

  // A partial dQ, four elements at a time so that a warp accesses 128 contiguous bytes.
  __device__ static void read_partial(float (&dq)[KeySize / 2], const float4* from) {
#pragma unroll
    for (int i = 0; i < KeySize / 8; ++i) {
      const float4 x = from[i * threads];
      dq[4 * i] = x.x;
      dq[4 * i + 1] = x.y;
      dq[4 * i + 2] = x.z;
      dq[4 * i + 3] = x.w;
    }
  }
  template <int Count>
  __device__ static void write_partial(float4* to, const float (&dq)[Count]) {
#pragma unroll
    for (int i = 0; i < Count / 4; ++i) to[i * threads] = {dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]};
  }
};

}  // namespace longstride::kernels::cuda::sm90
