#include "datasets/tokens/text_ids.h"
#include "datasets/tokens/words.h"
#include "framework/core/text/utf8.h"

namespace longstride {

std::size_t place_to_cut(std::string_view text, std::size_t most, bool at_lines) {
  if (text.size() <= most) return text.size();
  for (std::size_t at = most; at > most / 2; --at) {
    if (text[at - 1] == '\n' || text[at] == '\n') return at;
    if (!at_lines && text[at] == ' ' && text[at - 1] != ' ') return at;
  }
  std::size_t at = most;  // one word: between characters, if it has any
  while (at > most - 4 && at > 1 && utf8_length(text, at) == 0) --at;
  return at;
}

}  // namespace longstride
