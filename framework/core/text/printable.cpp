#include "framework/core/text/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "framework/core/text/utf8.h"

namespace longstride {
namespace {

// Marks that end a line or change the writing direction affect a terminal as control characters do.
bool is_mark(char32_t c) {
  return c == 0x061c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) ||
         c == 0xfeff;
}

std::string escaped(std::string_view text, bool keep_lists) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    const char32_t code = utf8_code(text, at);
    const bool item = keep_lists && text.substr(at).starts_with("\n  ");
    if (length > 0 && (item || !(is_control(text, at) || is_mark(code))))
      out += text.substr(at, length);
    else if (code == '\n' || code == '\t' || code == '\r')
      out += code == '\n' ? "\\n" : code == '\t' ? "\\t" : "\\r";
    else if (length > 1)
      out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(code));
    else
      out += fmt::format("\\x{:02x}", static_cast<std::uint8_t>(text[at]));
    at += std::max<std::size_t>(1, length);
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, false); }

std::string printable_beginning(std::string_view text, std::size_t most) {
  std::size_t end = 0;
  while (end < text.size()) {
    const std::size_t length = std::max<std::size_t>(1, utf8_length(text, end));
    if (end + length > most) return printable(text.substr(0, end)) + "...";
    end += length;
  }
  return printable(text);
}

std::string printable_message(std::string_view text) { return escaped(text, true); }

}  // namespace longstride
