// JSON that somebody else may have written.
#pragma once
#include <nlohmann/json.hpp>
#include <string_view>

namespace longstride {

// True if brackets are nested deeper than in anything that this program writes. The library parses any depth, but
// copies and prints a value by recursion, which exhausts the stack.
bool nested_too_deep(std::string_view text);

// A discarded value, as json::parse gives it, if `text` is not JSON or nested too deep.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text) {
  return nested_too_deep(text) ? Json(Json::value_t::discarded) : Json::parse(text, nullptr, false);
}

}  // namespace longstride
