// A rank's part of its host's memory (framework/core/device/host_limits.h).
#pragma once
#include "framework/train/step/memory_plan.h"

namespace longstride {

// The least that any limit leaves, in equal shares for the ranks of the host, less what a process takes in addition to
// what is planned.
MemoryLimit host_share(int ranks_on_host);
// Refuses from now on to allocate more than this in blocks (framework/core/device/memory.h).
void keep_to(const MemoryLimit& share);

}  // namespace longstride
