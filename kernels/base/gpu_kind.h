// The kind of the current device. The query is cheap enough for every launch.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>

#include "kernels/base/cuda_launch.cuh"

namespace longstride::kernels::cuda {

// Compute capability 9.0 exactly: sm_90a code does not run on later GPUs.
inline bool is_hopper() {
  static constexpr int most_devices = 64;
  static const auto hopper = [] {
    std::array<bool, most_devices> found{};
    int count = 0;
    check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    for (int device = 0; device < std::min(count, most_devices); ++device) {
      int major = 0, minor = 0;
      check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
      check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
      found[static_cast<std::size_t>(device)] = major == 9 && minor == 0;
    }
    return found;
  }();
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device < most_devices && hopper[static_cast<std::size_t>(device)];
}

inline int multiprocessors() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  return count;
}

}  // namespace longstride::kernels::cuda
