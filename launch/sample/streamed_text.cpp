#include "launch/sample/streamed_text.h"

#include <algorithm>

#include "framework/core/text/printable.h"
#include "framework/core/text/utf8.h"

namespace longstride {
namespace {

// Bytes at the end that may be the beginning of a character: a first byte of several, less than three bytes ago.
std::size_t unfinished(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) return 0;
    if (byte >= 0xC0) return utf8_length(text, text.size() - back) > 0 ? 0 : back;
  }
  return 0;
}

}  // namespace

std::string safe_for_terminal(std::string_view text) {
  std::string out;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const bool plain = i < text.size() && (text[i] == '\n' || text[i] == '\t');
    if (!plain && i < text.size()) continue;
    out += printable(text.substr(begin, i - begin));
    if (plain) out += text[i];
    begin = i + 1;
  }
  return out;
}

void StreamedText::write(std::string_view text) {
  if (text.empty()) return;
  const std::string shown = terminal_ ? safe_for_terminal(text) : std::string(text);
  std::fwrite(shown.data(), 1, shown.size(), out_);
  std::fflush(out_);
  line_ended_ = shown.ends_with('\n');
}

void StreamedText::add(std::string_view text) {
  held_ += text;
  const std::size_t whole = held_.size() - unfinished(held_);
  write(std::string_view(held_).substr(0, whole));
  held_.erase(0, whole);
}

void StreamedText::finish() {
  write(held_);
  held_.clear();
  if (terminal_ && !line_ended_) write("\n");
}

}  // namespace longstride
