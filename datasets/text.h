// Numbers as people read them.
#pragma once
#include <cstdint>
#include <string>

namespace longstride {

// 4150000 -> "4,150,000"
inline std::string thousands(std::int64_t n) {
  const std::string digits = std::to_string(n);
  const std::size_t first = n < 0 ? 1 : 0;
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > first && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

}  // namespace longstride
