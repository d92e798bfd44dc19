#include "framework/core/objective.h"

#include <algorithm>
#include <cctype>

namespace longstride {

std::string Figure::key() const {
  std::string key = name;
  std::transform(key.begin(), key.end(), key.begin(),
                 [](unsigned char c) { return c == ' ' ? '_' : static_cast<char>(std::tolower(c)); });
  return key;
}

Figure Objective::shown_of(const Scored& scored) const {
  std::vector<Figure> all = figures(scored);
  return std::move(all[std::min(shown(), all.size() - 1)]);
}

}  // namespace longstride
