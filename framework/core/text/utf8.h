// UTF-8 as the Unicode standard defines it (table 3-7): no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once
#include <cstddef>
#include <string_view>

namespace longstride {

// Bytes of the character that begins at `at`, 1 to 4; 0 if none begins there.
std::size_t utf8_length(std::string_view text, std::size_t at);

// The code point of that character.
char32_t utf8_code(std::string_view text, std::size_t at);

// True if the character at `at`, whose length utf8_length() has returned, is a control character: below U+0020 or from
// U+007F to U+009F. This includes tabs and line ends.
bool is_control(std::string_view text, std::size_t at);

}  // namespace longstride
