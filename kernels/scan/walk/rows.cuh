// Numbers of a normalised scan's rows, and what launches of walks have in common.
#pragma once
#include "kernels/base/cuda_launch.cuh"
#include "kernels/scan/walk/decays.cuh"
#include "kernels/scan/walk/state.cuh"

namespace longstride::kernels::cuda::scanning::walk {

// inverse: of denominators. of_z: what z's column is multiplied with: 1 for values, for gradients minus delta, of which
// as of all gradients the inverse is a factor.
struct RowNumbers {
  float inverse[chunk], of_z[chunk];

  struct Fetched {
    float denominator = 0, delta = 0;
  };
  __device__ static Fetched fetch(const ScanCall& call, const Place& place, bool of_gradients) {
    Fetched x;
    const int row = this_thread();
    if (!call.normalised || !of_gradients || row >= place.count) return x;
    x.denominator = call.denominator[place.of_unit(call, row)];
    x.delta = call.delta[place.of_unit(call, row)];
    return x;
  }
  __device__ void set(const Fetched& x, bool of_gradients) {
    if (this_thread() >= chunk) return;
    inverse[this_thread()] = x.denominator != 0 ? 1 / x.denominator : 0.0f;
    of_z[this_thread()] = of_gradients ? -x.delta : 1.0f;
  }
};

// Divides the warp's outputs by their rows' denominators, in column 0 of a product, and stores these.
template <int K, int Blocks>
__device__ inline void divide(Strip<Blocks>& o, const float (&below)[4], const ScanCall& call, const Place& at) {
  const int source = this_lane() / 4 * 4;
  const float low = __shfl_sync(~0u, below[0], source), high = __shfl_sync(~0u, below[2], source);
  scale_rows(o, low != 0 ? 1 / low : 0.0f, high != 0 ? 1 / high : 0.0f);
  if (Shares<K>::group_number() != 0 || this_lane() % 4 != 0) return;
  const int first = Shares<K>::strip() * part + this_lane() / 4;
  if (first < at.count) call.denominator[at.of_unit(call, first)] = low;
  if (first + 8 < at.count) call.denominator[at.of_unit(call, first + 8)] = high;
}

// A part of keys, transposed, with the decays to the chunk's end.
template <class T>
__device__ __forceinline__ void scale_to_end(std::uint32_t (&a)[4], const Products& products, int p) {
  const float beyond = products.behind(p);
  const float* const out = products.out + p * part + this_lane() % 4 * 2;
  scale_fragment<T>(a, 1, 1, {beyond * out[0], beyond * out[1]}, {beyond * out[8], beyond * out[9]});
}

// A part of rows, transposed, times numbers of rows, if given.
template <class T>
__device__ __forceinline__ void scale_by_rows(std::uint32_t (&a)[4], const float* factors, int p) {
  if (factors == nullptr) return;
  const float* const of = factors + p * part + this_lane() % 4 * 2;
  scale_fragment<T>(a, 1, 1, {of[0], of[1]}, {of[8], of[9]});
}

// Calls f with the sizes that the call's heads are padded to.
template <class F>
void with_sizes(const ScanCall& call, F&& f) {
  const auto of_keys = [&](auto value) {
    if (call.key_size <= 64)
      f(std::integral_constant<int, 64>{}, value);
    else if (call.key_size <= 128)
      f(std::integral_constant<int, 128>{}, value);
    else if constexpr (decltype(value)::value == 64)
      f(std::integral_constant<int, 256>{}, value);
  };
  if (call.value_size <= 64)
    of_keys(std::integral_constant<int, 64>{});
  else
    of_keys(std::integral_constant<int, 128>{});
}
// Blocks for which registers and shared memory suffice.
template <int K, int V>
inline constexpr int blocks_of_multiprocessor = K > 128 || V > 64 ? 1
                                                : K > 64          ? 2
                                                                  : 3;

template <int K, int V>
inline constexpr int channel_blocks_of_multiprocessor = K > 64 || V > 64 ? 1 : 2;
template <int K, int V>
inline constexpr int delta_blocks_of_multiprocessor = K > 64 || V > 64 ? 1 : 2;
template <class F>
void with_delta_sizes(const ScanCall& call, F&& f) {
  with_sizes(call, [&](auto key, auto value) {
    if constexpr (decltype(key)::value <= 128) f(key, value);
  });
}
template <class F>
void with_channel_sizes(const ScanCall& call, F&& f) {
  with_sizes(call, [&](auto key, auto value) {
    if constexpr (decltype(key)::value + decltype(value)::value <= 192) f(key, value);
  });
}

inline dim3 grid_of(const ScanCall& call) {
  return {static_cast<unsigned>(call.chunks), static_cast<unsigned>(call.units)};
}
// A block per run.
template <class Kernel>
void launch_walk(const char* name, Kernel kernel, const ScanCall& call, int threads_of_block, std::size_t bytes,
                 const Launch& launch) {
  allow_shared(kernel, bytes);
  run(name, kernel, {grid_of(call), static_cast<unsigned>(threads_of_block), bytes}, launch, call);
}

}  // namespace longstride::kernels::cuda::scanning::walk
