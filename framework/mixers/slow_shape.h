// Words of the sentences that name a slow shape (Mixer::slow).
#pragma once
#include <fmt/format.h>

#include <string>

namespace longstride {

inline constexpr const char* portable_kernels =
    "use kernels that are several times as slow as those written for Hopper";

// "48 and 56 are", of a path with the nearest fast values on either side; 0: there is none.
std::string nearest_fast(const auto& path) {
  if (path.below > 0 && path.above > 0) return fmt::format("{} and {} are", path.below, path.above);
  return fmt::format("{} is", path.below > 0 ? path.below : path.above);
}

}  // namespace longstride
