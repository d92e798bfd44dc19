// The functions of a C++ or CUDA source, and how long their bodies are. This counts braces instead of parsing:
// comments, literals and directives are blanked first. Outside functions, a brace opens a namespace or a class if its
// head says so, a table if "=" precedes it, and a function otherwise. Functions for the GPU are marked.
#pragma once
#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

namespace longstride::house {

struct Function {
  std::string head;  // the text before its brace, in one line
  int line = 0;      // where its brace is
  int lines = 0;     // between its braces
  bool on_gpu = false;
};

// The source with comments, literals and directives replaced by spaces; lines stay. Adds to `comments` where each "//"
// comment begins, except behind a directive.
inline std::string blanked(const std::string& source, std::vector<std::size_t>* comments = nullptr) {
  std::string text = source;
  const auto blank = [&](std::size_t begin, std::size_t end) {
    end = std::min(end, text.size());
    for (std::size_t i = begin; i < end; ++i)
      if (text[i] != '\n') text[i] = ' ';
    return end;
  };
  const auto after = [&](const std::string& mark, std::size_t at) {
    const std::size_t found = source.find(mark, at);
    return found == std::string::npos ? source.size() : found + mark.size();
  };
  bool fresh = true;  // only spaces so far in this line
  for (std::size_t i = 0; i < text.size();) {
    const char c = source[i];
    const bool in_word = i > 0 && (std::isalnum(static_cast<unsigned char>(source[i - 1])) || source[i - 1] == '_');
    if (source.compare(i, 2, "//") == 0) {
      if (comments != nullptr) comments->push_back(i);
      i = blank(i, source.find('\n', i));
    } else if (source.compare(i, 2, "/*") == 0) {
      i = blank(i, after("*/", i + 2));
    } else if (c == '#' && fresh) {
      std::size_t end = source.find('\n', i);
      while (end != std::string::npos && source[end - 1] == '\\') end = source.find('\n', end + 1);
      i = blank(i, end);
    } else if (source.compare(i, 2, "R\"") == 0 && !in_word) {
      const std::size_t open = std::min(source.find('(', i), source.size());
      std::string closing(1, ')');
      closing.append(source, i + 2, open - i - 2).push_back('"');
      i = blank(i, after(closing, open));
    } else if (c == '"' || (c == '\'' && !in_word)) {  // 1'000 has no literal
      std::size_t end = i + 1;
      while (end < source.size() && source[end] != c) end += source[end] == '\\' ? 2 : 1;
      i = blank(i, end + 1);
    } else {
      fresh = c == '\n' || (fresh && std::isspace(static_cast<unsigned char>(c)));
      ++i;
    }
  }
  return text;
}

inline std::vector<std::string> words_of(const std::string& head) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : head + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(word);
      word.clear();
    }
  }
  return words;
}

inline bool opens_scope(const std::string& head) {
  std::string first = head;
  while (first.starts_with("template")) {  // assumes that the parameter list contains no ">"
    const std::size_t end = first.find('>');
    if (end == std::string::npos) break;
    first.erase(0, std::min(first.find_first_not_of(" >", end), first.size()));
  }
  const std::vector<std::string> words = words_of(first);
  if (words.empty()) return false;
  const std::string& word = words.front() == "inline" && words.size() > 1 ? words[1] : words.front();
  for (const char* scope : {"namespace", "class", "struct", "union", "enum", "extern"})
    if (word == scope) return first.find(')') == std::string::npos || word != "extern";
  return false;
}

inline bool ends_an_access_specifier(const std::string& head) {
  return head == "public" || head == "protected" || head == "private";
}

inline std::vector<Function> functions_of(const std::string& source) {
  std::vector<Function> found;
  const std::string text = blanked(source);
  std::string head;
  int line = 1, depth = 0;  // open braces of a function or a table
  bool table = false;
  Function current;
  for (const char c : text) {
    if (c == '\n') ++line;
    if (depth > 0) {
      depth += c == '{' ? 1 : c == '}' ? -1 : 0;
      if (depth > 0 || c != '}') continue;
      current.lines = std::max(0, line - current.line - 1);
      if (!table) found.push_back(current);
      head.clear();
    } else if (c == '{') {
      const std::size_t last = head.find_last_not_of(' ');
      table = last != std::string::npos && (head[last] == '=' || head[last] == ',');
      if (!opens_scope(head)) {
        const bool on_gpu =
            head.find("__global__") != std::string::npos || head.find("__device__") != std::string::npos;
        current = {head, line, 0, on_gpu};
        depth = 1;
      }
      head.clear();
    } else if (c == ';' || c == '}' || (c == ':' && ends_an_access_specifier(head))) {
      head.clear();
    } else if (!std::isspace(static_cast<unsigned char>(c))) {
      head += c;
    } else if (!head.empty() && head.back() != ' ') {
      head += ' ';
    }
  }
  return found;
}

}  // namespace longstride::house
