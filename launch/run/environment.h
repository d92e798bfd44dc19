// Where a run takes place: the content of RUN/environment.json, which every start of the run writes.
#pragma once
#include <string>

#include "framework/core/device/device.h"

namespace longstride {

// JSON: version, source commit, build, command line and where it was given, device, ranks, machine, start time.
std::string describe_environment(Device device, int ranks);

}  // namespace longstride
