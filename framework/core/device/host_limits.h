// Limits of this process on its host: memory and processors, by the system, by control groups (a container, a batch
// job) of either version, and by limits of the process (ulimit).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace longstride {

// Where the file system begins in which limits are looked up: the environment variable LONGSTRIDE_HOST_ROOT, which
// tests set, or else the root.
std::string host_root();

// A limit on memory, known on this host.
struct HostMemory {
  std::int64_t free = 0, all = 0;  // bytes: that may still be taken, and in total; swap space does not count
  std::string origin;              // "free on this machine"
  bool of_process = false;         // not shared with the host's other ranks
  bool of_addresses = false;       // counts what is reserved, even if it is never touched
};
// The machine first; then groups with a limit, each with those that it is in, and limits of the process.
std::vector<HostMemory> host_memory(const std::string& root = host_root());

// From now on a block of host memory (memory.h) is refused, by a UserError, if blocks would take more than `bytes` more
// than they do now. `origin`: as above.
void limit_host_blocks(std::int64_t bytes, const std::string& origin);

// Processors that a quota of a control group allows, such as 1.5; absent without one.
std::optional<double> processor_quota(const std::string& root = host_root());
// Processors on which this process may run and that its quota allows, rounded up; at least 1.
int usable_processors(const std::string& root = host_root());

}  // namespace longstride
