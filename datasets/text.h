// Numbers and names as people read them.
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

// Control characters, with which a name could write over what is on the terminal, as \x1b; all else as it is.
inline std::string printable(const std::string& text) {
  std::string out;
  bool within = false;  // the second byte of U+0080 to U+009F, which are control characters too
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]), next = static_cast<unsigned char>(text[i + 1]);
    const bool first = c == 0xC2 && next >= 0x80 && next < 0xA0;
    if (c >= 0x20 && c != 0x7F && !first && !within) {
      out += text[i];
    } else {
      out += "\\x";
      out += "0123456789abcdef"[c >> 4];
      out += "0123456789abcdef"[c & 15];
    }
    within = first;
  }
  return out;
}

}  // namespace longstride
