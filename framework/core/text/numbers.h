// Numbers as people read them.
#pragma once
#include <cstdint>
#include <string>

namespace longstride {

// 4150000 -> "4,150,000"
inline std::string thousands(std::int64_t n) {
  std::string out = std::to_string(n);
  const std::int64_t first = n < 0 ? 1 : 0;
  for (std::int64_t at = static_cast<std::int64_t>(out.size()) - 3; at > first; at -= 3)
    out.insert(static_cast<std::size_t>(at), 1, ',');
  return out;
}

constexpr double gib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace longstride
