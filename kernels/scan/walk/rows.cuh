// Numbers of a normalised scan's rows, and what launches of walks have in common.
#pragma once
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

inline dim3 grid_of(const ScanCall& call) {
  return {static_cast<unsigned>(call.chunks), static_cast<unsigned>(call.units)};
}

}  // namespace longstride::kernels::cuda::scanning::walk
