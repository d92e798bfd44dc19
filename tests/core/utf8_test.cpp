// Compared with the definition for every code point: encoded, it is one character of the right length, and any shorter
// or longer form of the same number is invalid.
#include "framework/core/text/utf8.h"

#include <gtest/gtest.h>

namespace longstride {
namespace {

// `code` in `length` bytes, overlong if fewer suffice.
std::string encoded(std::uint32_t code, int length) {
  if (length == 1) return std::string(1, static_cast<char>(code));
  constexpr unsigned leads[] = {0, 0, 0xC0, 0xE0, 0xF0};
  std::string out;
  for (int i = length - 1; i > 0; --i, code >>= 6) out.insert(out.begin(), static_cast<char>(0x80 | (code & 0x3F)));
  return std::string(1, static_cast<char>(leads[length] | code)) + out;
}

int shortest(std::uint32_t code) { return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4; }

TEST(Utf8, EveryCodePointHasOneForm) {
  for (std::uint32_t code = 0; code < 0x200000; ++code) {
    const bool exists = code < 0x110000 && (code < 0xD800 || code > 0xDFFF);
    for (int length = shortest(code); length <= 4; ++length) {
      const std::size_t expected = exists && length == shortest(code) ? static_cast<std::size_t>(length) : 0;
      ASSERT_EQ(utf8_length(encoded(code, length), 0), expected) << std::hex << code << " in " << length;
    }
    if (exists) {
      ASSERT_EQ(utf8_code(encoded(code, shortest(code)), 0), code);
      ASSERT_EQ(is_control(encoded(code, shortest(code)), 0), code < 0x20 || (code >= 0x7F && code < 0xA0)) << code;
    }
  }
}

TEST(Utf8, ACharacterCutShortIsNone) {
  const std::string emoji = "\xF0\x9F\x98\x80";
  for (std::size_t length = 0; length < 4; ++length) EXPECT_EQ(utf8_length(emoji.substr(0, length), 0), 0u);
  EXPECT_EQ(utf8_length("a" + emoji, 1), 4u);
  EXPECT_EQ(utf8_length(emoji, 1), 0u);
}

}  // namespace
}  // namespace longstride
