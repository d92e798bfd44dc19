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

// counted(1, "file") -> "1 file", counted(2300, "file") -> "2,300 files". `many`: a plural that is not one plus s.
inline std::string counted(std::int64_t n, const std::string& one, const std::string& many = "") {
  return thousands(n) + " " + (n == 1 ? one : many.empty() ? one + "s" : many);
}

// 152000000 -> "152.0 M", 84224 -> "84,224": a small number has no 0.1 M.
inline std::string in_millions(double count) {
  if (count < 999500) return thousands(static_cast<std::int64_t>(count + 0.5));
  const auto tenths = static_cast<std::int64_t>(count / 1e5 + 0.5);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " M";
}

constexpr double gib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace longstride
