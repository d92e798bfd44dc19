// UTF-8 as the Unicode standard defines it (table 3-7): no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once
#include <cstddef>
#include <string_view>

namespace longstride {

// Bytes of the character that begins at `at`, 1 to 4; 0: none begins there.
std::size_t utf8_length(std::string_view text, std::size_t at);

// The number of that character.
char32_t utf8_code(std::string_view text, std::size_t at);

// Whether the character at `at`, which utf8_length() has found, is a control character: below U+0020 or from U+007F to
// U+009F. Tabs and ends of lines are control characters.
bool is_control(std::string_view text, std::size_t at);

}  // namespace longstride
