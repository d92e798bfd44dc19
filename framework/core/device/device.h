// The devices that compute: the CPU, and GPUs where there are some. Memory is in memory.h, work in order in stream.h.
// What differs between the two is said here or done in these files; nothing in framework/train asks which one it is.
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
// 16-bit types; otherwise fp32 alone (and fp64 in tests).
constexpr bool computes_in_16_bits(Device device) { return device == Device::cuda; }
// Device memory for libraries: 32 MiB for cuBLASLt, what NVIDIA advises for Hopper.
constexpr std::size_t library_workspace_bytes(Device device) {
  return device == Device::cuda ? std::size_t{32} << 20 : 0;
}

// Whether this program was built with CUDA at all. It may still find no GPU.
bool built_with_cuda();
// GPUs that this process may use; 0 where there is no CUDA, no driver or no GPU. Never throws.
int device_count();

struct DeviceInfo {
  std::string name;  // "NVIDIA H200"
  int major = 0, minor = 0;
  std::size_t total_bytes = 0, free_bytes = 0;
};
DeviceInfo device_info();  // of the GPU that this thread uses: the first, until it is told another
inline std::optional<DeviceInfo> gpu_info(Device device) {
  return device == Device::cuda ? std::optional(device_info()) : std::nullopt;
}

// Which GPU this thread uses from now on. A thread that puts work on a GPU is told so itself.
void use_device(int number);
int used_device();
std::string device_identity();        // of the GPU that this thread uses: no other has it, on any host
std::string device_links(int count);  // how the first `count` GPUs are connected, e.g. "NVLink"

}  // namespace longstride
