// Where a run takes place: what RUN/environment.json holds, written by every process that trains it.
#pragma once
#include <string>

#include "framework/core/device/device.h"

namespace longstride {

// JSON: version, compiler, host, system, processor, cores, device, ranks, when it began.
std::string describe_environment(Device device, int ranks);

}  // namespace longstride
