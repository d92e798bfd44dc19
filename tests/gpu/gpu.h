// Shared by the tests of CUDA kernels: skipping without a GPU, and arrays on the GPU.
#pragma once
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "kernels/base/cuda_launch.cuh"

namespace longstride::test {

inline bool have_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

// The first line of every test that needs a GPU.
#define LONGSTRIDE_NEEDS_GPU() \
  if (!::longstride::test::have_gpu()) GTEST_SKIP() << "no GPU"

// Off for compute-sanitizer's initcheck, which treats poison as an ordinary value.
inline bool poisons() {
  const char* setting = std::getenv("LONGSTRIDE_TEST_POISON");
  return setting == nullptr || std::string_view(setting) != "0";
}

// Device memory, poisoned with NaN patterns to reveal what a kernel fails to write.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    kernels::cuda::check(cudaMalloc(&data_, bytes() + 16), "cudaMalloc");
    if (poisons()) kernels::cuda::check(cudaMemset(data_, 0xFF, bytes() + 16), "cudaMemset");
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
    kernels::cuda::check(cudaMemcpy(data_, host.data(), bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return static_cast<T*>(data_); }
  std::size_t count() const { return count_; }
  std::size_t bytes() const { return count_ * sizeof(T); }
  std::vector<T> host() const {
    std::vector<T> out(count_);
    kernels::cuda::check(cudaMemcpy(out.data(), data_, bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return out;
  }

 private:
  void* data_ = nullptr;
  std::size_t count_;
};

}  // namespace longstride::test
