#include "framework/core/printable.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace longstride {
namespace {

struct Character {
  std::size_t bytes = 1;
  char32_t code = 0;
  bool valid = false;
};

// The first character of `text` as UTF-8; not valid when it is overlong, a surrogate, beyond Unicode or cut short.
Character first_character(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  if (at(0) < 0x80) return {1, at(0), true};
  const std::size_t bytes = at(0) >= 0xf0 ? 4 : at(0) >= 0xe0 ? 3 : 2;
  if (at(0) < 0xc2 || at(0) > 0xf4 || text.size() < bytes) return {};
  char32_t code = at(0) & (0xffu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((at(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (at(i) & 0x3f);
  }
  constexpr std::array<char32_t, 5> least = {0, 0, 0x80, 0x800, 0x10000};
  if (code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {bytes, code, true};
}

bool is_control(char32_t c) {
  const bool direction =
      c == 0x061c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || c == 0xfeff || direction;
}

std::string escaped(std::string_view text, bool keep_lists) {
  std::string out;
  while (!text.empty()) {
    const Character c = first_character(text);
    const bool item = keep_lists && text.starts_with("\n  ");
    const bool kept = c.valid && (item || !is_control(c.code));
    if (kept)
      out += text.substr(0, c.bytes);
    else if (c.valid && (c.code == '\n' || c.code == '\t' || c.code == '\r'))
      out += c.code == '\n' ? "\\n" : c.code == '\t' ? "\\t" : "\\r";
    else if (c.valid && c.code >= 0x80)
      out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c.code));
    else
      out += fmt::format("\\x{:02x}", static_cast<std::uint8_t>(text[0]));
    text.remove_prefix(c.bytes);
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, false); }

std::string printable_message(std::string_view text) { return escaped(text, true); }

}  // namespace longstride
