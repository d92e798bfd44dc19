// Text fit for a terminal and a log. A file's name may hold anything: escape sequences, line breaks, bytes that are not
// UTF-8, marks that turn the direction of writing. They are shown as \x1b, \n, \xff, \u202e; everything else
// stays as it is, backslashes too, so text that is escaped twice is escaped once.
#pragma once
#include <string>
#include <string_view>

namespace longstride {

std::string printable(std::string_view text);
// The same for a message, which may hold a list: a line break before a line that is indented by two spaces stays.
std::string printable_message(std::string_view text);

}  // namespace longstride
