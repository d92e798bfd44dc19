// The energy that a GPU has used, by its driver's own counter (NVML, found when it is asked for, so no build needs it).
#pragma once
#include <optional>

#include "framework/core/device/device.h"

namespace longstride {

// Joules since the driver was loaded, of the GPU that this thread uses, whatever uses it; absent on the CPU and where
// the driver does not tell.
std::optional<double> joules_of(Device device);

}  // namespace longstride
