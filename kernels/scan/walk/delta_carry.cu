// Delta: the scan over runs.
#include "kernels/base/cuda_launch.cuh"
#include "kernels/scan/walk/delta.cuh"

namespace longstride::kernels::cuda::scanning {
namespace walk {
namespace {

constexpr int carried = 8, carry_threads = 256, slots = 3;  // columns of a block; matrices that are there

// A block goes through the runs with some columns of a unit's state, in f32: S behind a run is M S + X, or backwards G
// before it M^T G + X. A thread has some columns of a row; the next matrices are on their way. Size: of keys, padded.
template <int Size>
struct DeltaCarry {
  static constexpr int stride = Size + 4, groups = carry_threads / Size, own = carried / groups,
                       matrix_floats = Size * stride;
  static constexpr std::size_t bytes = sizeof(float) * (slots * matrix_floats + carried * Size);
  const ScanCall& call;
  const bool backwards;
  float* const states;
  const int unit = static_cast<int>(blockIdx.y), size = call.key_size, row = this_thread() % Size,
            first = this_thread() / Size * own, column = static_cast<int>(blockIdx.x) * carried + first;
  float* const matrices = reinterpret_cast<float*>(memory);
  float* const state = matrices + slots * matrix_floats;  // a column's rows are neighbours

  __device__ std::int64_t run_of(int step) const {
    return static_cast<std::int64_t>(unit) * call.chunks + (backwards ? call.chunks - 1 - step : step);
  }
  __device__ bool has(int c) const { return row < size && column + c < call.columns; }
  __device__ float* at(float* of_states, std::int64_t number) const {
    return of_states + (number * size + row) * call.columns + column;
  }
  __device__ void start(int step) const {
    if (step < call.chunks) {
      const float* const from = call.transitions + run_of(step) * size * size;
      float* const to = matrices + step % slots * matrix_floats;
      const bool words = size % 4 == 0;
      for (int r = this_warp(); r < size; r += carry_threads / warp_threads)
        for (int c = this_lane() * (words ? 4 : 1); c < size; c += warp_threads * (words ? 4 : 1))
          words ? copy_async_16(to + r * stride + c, from + r * size + c, true)
                : copy_async_4(to + r * stride + c, from + r * size + c, true);
    }
    copies_commit();
  }
  __device__ void read(float (&added)[own], int step) const {
#pragma unroll
    for (int c = 0; c < own; ++c) added[c] = step < call.chunks && has(c) ? at(states, run_of(step))[c] : 0.0f;
  }
  __device__ void add_product(float (&sum)[own], const float* matrix) const {
#pragma unroll 4
    for (int m = 0; m < Size; m += 4) {
      float4 x;
      if (backwards)
        x = {matrix[m * stride + row], matrix[(m + 1) * stride + row], matrix[(m + 2) * stride + row],
             matrix[(m + 3) * stride + row]};
      else
        x = *reinterpret_cast<const float4*>(matrix + row * stride + m);
#pragma unroll
      for (int c = 0; c < own; ++c) {
        const float4 s = *reinterpret_cast<const float4*>(state + (first + c) * Size + m);
        sum[c] += (x.x * s.x + x.y * s.y) + (x.z * s.z + x.w * s.w);
      }
    }
  }
  __device__ void walk(const float* from, float* last) const {
    for (int i = this_thread(); i < slots * matrix_floats; i += carry_threads) matrices[i] = 0;
    float now[own], added[own];
#pragma unroll
    for (int c = 0; c < own; ++c) {
      now[c] = from != nullptr && has(c)
                   ? from[(static_cast<std::int64_t>(unit) * size + row) * call.columns + column + c]
                   : 0.0f;
      state[(first + c) * Size + row] = now[c];
    }
    __syncthreads();
    start(0);
    start(1);
    read(added, 0);
    for (int step = 0; step < call.chunks; ++step) {
      float next[own];
      read(next, step + 1);
      copies_wait<1>();
      __syncthreads();
      start(step + 2);
      add_product(added, matrices + step % slots * matrix_floats);
      __syncthreads();
#pragma unroll
      for (int c = 0; c < own; ++c) {
        if (has(c)) at(states, run_of(step))[c] = now[c];
        now[c] = added[c];
        state[(first + c) * Size + row] = now[c];
        added[c] = next[c];
      }
    }
#pragma unroll
    for (int c = 0; c < own; ++c)
      if (last != nullptr && has(c)) at(last, unit)[c] = now[c];
  }
};

template <int Size>
__global__ __launch_bounds__(carry_threads) void delta_carry_kernel(const __grid_constant__ ScanCall call,
                                                                    const bool backwards, float* const states,
                                                                    const float* const first, float* const last) {
  DeltaCarry<Size>{call, backwards, states}.walk(first, last);
}

}  // namespace
}  // namespace walk

void carry_delta(const ScanCall& call, bool backwards, const float* first, float* last, const Launch& launch) {
  float* const states = backwards ? call.gradients.behind : call.states.before;
  const auto start = [&](auto kernel, std::size_t bytes) {
    allow_shared(kernel, bytes);
    run("scan delta carry", kernel,
        {dim3(static_cast<unsigned>((call.columns + walk::carried - 1) / walk::carried),
              static_cast<unsigned>(call.units)),
         walk::carry_threads, bytes},
        launch, call, backwards, states, first, last);
  };
  call.key_size <= 64 ? start(walk::delta_carry_kernel<64>, walk::DeltaCarry<64>::bytes)
                      : start(walk::delta_carry_kernel<128>, walk::DeltaCarry<128>::bytes);
}

}  // namespace longstride::kernels::cuda::scanning
