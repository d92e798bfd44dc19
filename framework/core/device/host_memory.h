// The memory that the host has left.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace longstride {

// Bytes that this process may still take: what Linux calls available, or less if a control group (a container, a batch
// job) allows less. Absent where neither is known. `root` replaces the root of the file system in tests.
std::optional<std::int64_t> free_host_memory(const std::string& root = "");

}  // namespace longstride
