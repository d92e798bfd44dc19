// The comments of a C++ or CUDA source. Those of consecutive lines are one if they begin in the same column.
#pragma once
#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "tests/house/functions.h"

namespace longstride::house {

struct Comment {
  std::string text;  // the first line, without slashes
  int line = 0;      // in the file, from 1
};

inline std::vector<Comment> comments_of(const std::string& source) {
  std::vector<std::size_t> starts;
  blanked(source, &starts);
  std::vector<Comment> found;
  std::size_t at = 0, last_column = 0;
  for (int line = 1, last_line = -1; const std::size_t start : starts) {
    line += static_cast<int>(std::count(&source[at], &source[start], '\n'));
    at = start;
    const std::size_t begin = source.rfind('\n', start) + 1, column = start - begin;  // npos + 1 is 0
    const bool alone = source.find_first_not_of(' ', begin) == start;
    const std::size_t end = std::min(source.find('\n', start), source.size());
    const std::size_t text = std::min(source.find_first_not_of("/ ", start), end);
    if (!alone || line != last_line + 1 || column != last_column)
      found.push_back({source.substr(text, end - text), line});
    last_line = line;
    last_column = column;
  }
  return found;
}

// True if the text begins with a word that makes a reader wait for the subject.
inline bool begins_badly(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::string first = text.substr(0, text.find_first_not_of("abcdefghijklmnopqrstuvwxyz"));
  return first == "of" || first == "what" || first == "whether";
}

}  // namespace longstride::house
