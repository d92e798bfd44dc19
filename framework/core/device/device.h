// The devices that compute: the CPU and any GPUs. memory.h has their memory, stream.h the order of their work. These
// files cover every difference between the two; nothing in framework/train tests which one it uses.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "kernels/base/op.h"

namespace longstride {

using kernels::Device;

// The device computes in the host's memory, and work is done when a call returns.
constexpr bool shares_host_memory(Device device) { return device == Device::cpu; }
// With 16-bit types; otherwise only in fp32 (and fp64 in tests).
constexpr bool computes_in_16_bits(Device device) { return device == Device::cuda; }
// Device memory for libraries: the 32 MiB that NVIDIA recommends for cuBLASLt on Hopper.
constexpr std::size_t library_workspace_bytes(Device device) {
  return device == Device::cuda ? std::size_t{32} << 20 : 0;
}

// True if this program was built with CUDA at all. It may still find no GPU.
bool built_with_cuda();
// Number of GPUs that this process may use; 0 without CUDA, driver or GPU. Never throws.
int device_count();

struct DeviceInfo {
  std::string name;  // "NVIDIA H200"
  int major = 0, minor = 0;
  std::size_t total_bytes = 0, free_bytes = 0;
};
DeviceInfo device_info();  // the GPU that this thread uses, by default the first
inline std::optional<DeviceInfo> gpu_info(Device device) {
  return device == Device::cuda ? std::optional(device_info()) : std::nullopt;
}

// Selects the GPU that this thread uses from now on. Every thread that puts work on a GPU must call it.
void use_device(int number);
int used_device();
std::string device_identity();        // name of the GPU that this thread uses; unique across hosts
std::string device_links(int count);  // how the first `count` GPUs are connected, e.g. "NVLink"

}  // namespace longstride
