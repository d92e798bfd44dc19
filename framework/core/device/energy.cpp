#include "framework/core/device/energy.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>

namespace longstride {
namespace {

// The part of NVML's interface that is used here; it has been stable since version 11 of the driver's API.
struct Nvml {
  using Handle = void*;
  int (*init)() = nullptr;
  int (*by_uuid)(const char*, Handle*) = nullptr;
  int (*energy)(Handle, unsigned long long*) = nullptr;  // millijoules

  Nvml() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    };
    find(init, "nvmlInit_v2");
    find(by_uuid, "nvmlDeviceGetHandleByUUID");
    find(energy, "nvmlDeviceGetTotalEnergyConsumption");
    if (init != nullptr && init() != 0) init = nullptr;
  }
  bool usable() const { return init != nullptr && by_uuid != nullptr && energy != nullptr; }
};

// device_identity() as NVML writes it: GPU-01234567-89ab-cdef-0123-456789abcdef.
std::string uuid_of(const std::string& identity) {
  std::string out = "GPU-";
  for (std::size_t i = 0; i < identity.size(); ++i) {
    if (i == 8 || i == 12 || i == 16 || i == 20) out += '-';
    out += identity[i];
  }
  return out;
}

}  // namespace

std::optional<double> joules_of(Device device) {
  if (shares_host_memory(device)) return std::nullopt;
  static const Nvml nvml;
  Nvml::Handle gpu = nullptr;
  unsigned long long millijoules = 0;
  if (!nvml.usable() || nvml.by_uuid(uuid_of(device_identity()).c_str(), &gpu) != 0 ||
      nvml.energy(gpu, &millijoules) != 0)
    return std::nullopt;
  return static_cast<double>(millijoules) / 1e3;
}

}  // namespace longstride
