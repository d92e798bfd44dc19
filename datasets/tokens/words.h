// The words of a text, as TextIds encodes them.
#pragma once
#include <cstddef>
#include <string_view>

namespace longstride {

// The length of the first word: a line feed; or spaces and what follows them, up to a space or line feed.
inline std::size_t first_word(std::string_view text) {
  if (text.starts_with('\n')) return 1;
  std::size_t at = 0;
  while (at < text.size() && text[at] == ' ') ++at;
  while (at < text.size() && text[at] != ' ' && text[at] != '\n') ++at;
  return at;
}

// The length of the first line, or of the line feed before it.
inline std::size_t first_line(std::string_view text) {
  if (text.starts_with('\n')) return 1;
  const std::size_t end = text.find('\n');
  return end == std::string_view::npos ? text.size() : end;
}

}  // namespace longstride
