#include "launch/recipe/settings_writer.h"

#include <fmt/format.h>

namespace longstride {
namespace {

// On one line.
std::string flow(const Setting& s) {
  std::string inside;
  const auto add = [&](const std::string& item) { inside += (inside.empty() ? "" : ", ") + item; };
  switch (s.kind) {
    case Setting::Kind::null:
      return "null";
    case Setting::Kind::scalar:
      return s.quoted ? quoted_yaml(s.scalar) : s.scalar;
    case Setting::Kind::list:
      for (const Setting& item : s.items) add(flow(item));
      return "[" + inside + "]";
    case Setting::Kind::map:
      for (const auto& [key, value] : s.entries) add(key + ": " + flow(value));
      return "{" + inside + "}";
  }
  return "";
}

std::string line(const std::string& indent, const std::string& key, const std::string& value,
                 const std::map<std::string, std::string>& comments, const std::string& dotted) {
  const auto comment = comments.find(dotted);
  return indent + key + ":" + (value.empty() ? "" : " " + value) +
         (comment == comments.end() ? "" : "  # " + comment->second) + "\n";
}

}  // namespace

std::string quoted_yaml(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += std::string("\\") + c;
    else if (byte < 0x20)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out + "\"";
}

std::string settings_as_yaml(const Setting& root, const std::map<std::string, std::string>& comments) {
  std::string out;
  for (const auto& [section, value] : root.entries) {
    const bool lines = value.kind == Setting::Kind::map && !value.entries.empty();
    out += line("", section, lines ? "" : flow(value), comments, section);
    if (!lines) continue;
    for (const auto& [key, inner] : value.entries) out += line("  ", key, flow(inner), comments, section + "." + key);
  }
  return out;
}

}  // namespace longstride
