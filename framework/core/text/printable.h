// Text that is safe for a terminal and a log. A file's name may contain anything: escape sequences, line breaks, bytes
// that are not UTF-8, marks that change the writing direction. They are shown as \x1b, \n, \xff, \u202e; everything
// else, including backslashes, stays as it is, so escaping twice is the same as escaping once.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace longstride {

std::string printable(std::string_view text);
// The text's beginning of at most `most` bytes, and "..." if there is more: for names in files that may hold anything.
std::string printable_beginning(std::string_view text, std::size_t most = 80);
// The same as printable() for a message, which may contain a list: a line break stays if the next line is indented by
// two spaces.
std::string printable_message(std::string_view text);

}  // namespace longstride
