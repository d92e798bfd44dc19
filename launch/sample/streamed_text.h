// Text on a terminal or in a pipe while it is drawn.
#pragma once
#include <cstdio>
#include <string>
#include <string_view>

namespace longstride {

// As a terminal may show it: escape sequences are made visible, line breaks and tabs stay.
std::string safe_for_terminal(std::string_view text);

// Writes whole characters at once. A terminal gets safe text, everything else the bytes as they are.
class StreamedText {
 public:
  StreamedText(std::FILE* out, bool terminal) : out_(out), terminal_(terminal) {}

  void add(std::string_view text);
  // Writes what is left of a character, and on a terminal ends the line.
  void finish();

 private:
  void write(std::string_view text);

  std::FILE* out_;
  bool terminal_, line_ended_ = true;
  std::string held_;  // the beginning of a character whose end is not known yet
};

}  // namespace longstride
