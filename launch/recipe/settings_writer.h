// A tree of settings as YAML, for recipes that a program writes for people: sections in lines, what is deeper in
// braces, and a comment behind a key. parse_settings() reads it back.
#pragma once
#include <map>
#include <string>

#include "launch/recipe/settings_tree.h"

namespace longstride {

// Double-quoted YAML, so that any bytes can be read back unchanged.
std::string quoted_yaml(const std::string& text);

// `comments`: by dotted key, each one line.
std::string settings_as_yaml(const Setting& root, const std::map<std::string, std::string>& comments);

}  // namespace longstride
