// The most memory that this process has held so far.
#pragma once
#include <sys/resource.h>

#include <cstddef>

namespace longstride {

inline std::size_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

}  // namespace longstride
