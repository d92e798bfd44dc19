// Where a run takes place: the content of RUN/environment.json, which every start of the run writes.
#pragma once
#include <string>

#include "framework/core/device/device.h"

namespace longstride {

// JSON: version, source commit, build, command line and where it was given, device, ranks, machine, start time; and
// `from`, if it is not empty: the run, step and weights that this run begins with.
std::string describe_environment(Device device, int ranks, const std::string& run_id, const std::string& from);

}  // namespace longstride
