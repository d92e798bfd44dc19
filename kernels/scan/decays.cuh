// Products of a chunk's decays (scan_call.h), in runs of 16 positions.
#pragma once
#include "kernels/scan/chunk_rows.cuh"

namespace longstride::kernels::cuda::scanning {

inline constexpr int run_rows = 16, runs = rows / run_rows;

// For a decay per head; all 1 without one.
struct alignas(16) HeadDecays {
  float a[rows];
  float in[rows], out[rows];             // from the run's start through a row, and behind it to the run's end
  float from_start[rows], to_end[rows];  // the same of the chunk: W and E
  float total[runs];                     // over a run
  float between[runs][runs];             // over the runs between two
  float whole;

  __device__ void set(const ScanCall& call, const Place& place) {
    const int t = this_thread(), b = t / run_rows;
    if (t < rows) a[t] = decay_at(call, place, t, 0);
    __syncthreads();
    if (t < rows) {
      float product = 1;
      for (int j = b * run_rows; j <= t; ++j) product *= a[j];
      in[t] = product;
      if (t % run_rows == run_rows - 1) total[b] = product;
      product = 1;
      for (int j = t + 1; j < (b + 1) * run_rows; ++j) product *= a[j];
      out[t] = product;
    }
    __syncthreads();
    if (t < rows) {
      float product = in[t];
      for (int other = b - 1; other >= 0; --other) product *= total[other];
      from_start[t] = product;
      if (t == rows - 1) whole = product;
      product = out[t];
      for (int other = b + 1; other < runs; ++other) product *= total[other];
      to_end[t] = product;
    } else if (t - rows < runs * runs) {
      const int late = (t - rows) / runs, early = (t - rows) % runs;
      float product = 1;
      for (int other = early + 1; other < late; ++other) product *= total[other];
      between[late][early] = product;
    }
    __syncthreads();
  }
  // D of row i and an earlier row j.
  __device__ float of(int i, int j) const {
    const int late = i / run_rows, early = j / run_rows;
    if (late != early) return in[i] * between[late][early] * out[j];
    float product = 1;
#pragma unroll 1
    for (int t = j + 1; t <= i; ++t) product *= a[t];
    return product;
  }
};

// Scales a tile of rows by the products of each channel's decays from the chunk's start, or to its end. whole: null, or
// where the products over the chunk are written.
template <class T>
__device__ inline void scale_channels(Keys<T> tile, const ScanCall& call, const Place& place, const Columns& columns,
                                      bool to_end, float* whole) {
  const int c = this_thread();
  if (c >= columns.count) return;
  float product = 1;
#pragma unroll 8
  for (int i = 0; i < rows; ++i) {
    const int row = to_end ? rows - 1 - i : i;
    const float a = decay_at(call, place, row, columns.first + c);
    if (!to_end) product *= a;
    tile.set(row, c, tile(row, c) * product);
    if (to_end) product *= a;
  }
  if (whole != nullptr) whole[columns.first + c] = product;
}

}  // namespace longstride::kernels::cuda::scanning
