#include "framework/core/text/utf8.h"

namespace longstride {
namespace {

unsigned byte_at(std::string_view text, std::size_t at) {
  return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
}

}  // namespace

std::size_t utf8_length(std::string_view text, std::size_t at) {
  if (at >= text.size()) return 0;
  const unsigned first = byte_at(text, at), second = byte_at(text, at + 1);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte_at(text, at + i) & 0xC0U) != 0x80) return 0;
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second > 0x9F, too_large = first == 0xF4 && second > 0x8F;
  return overlong || surrogate || too_large ? 0 : length;
}

char32_t utf8_code(std::string_view text, std::size_t at) {
  const std::size_t length = utf8_length(text, at);
  char32_t code = length <= 1 ? byte_at(text, at) : byte_at(text, at) & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) code = code << 6 | (byte_at(text, at + i) & 0x3FU);
  return code;
}

bool is_control(std::string_view text, std::size_t at) {
  const unsigned first = byte_at(text, at);
  return first < 0x20 || first == 0x7F || (first == 0xC2 && byte_at(text, at + 1) < 0xA0);
}

}  // namespace longstride
