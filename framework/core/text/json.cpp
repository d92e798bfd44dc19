#include "framework/core/text/json.h"

namespace longstride {

bool nested_too_deep(std::string_view text) {
  constexpr int deepest = 16;
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size() && depth <= deepest; ++i) {
    const char c = text[i];
    if (quoted && c == '\\') ++i;
    if (c == '"') quoted = !quoted;
    if (!quoted && (c == '[' || c == '{')) ++depth;
    if (!quoted && (c == ']' || c == '}')) --depth;
  }
  return depth > deepest;
}

}  // namespace longstride
