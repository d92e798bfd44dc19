#include "datasets/group_finder.h"

#include <string_view>

namespace longstride {
namespace {

bool is_one_of(std::string_view characters, std::uint8_t byte) {
  return characters.find(static_cast<char>(byte)) != std::string_view::npos;
}

}  // namespace

void GroupFinder::read(const std::uint8_t* bytes, std::int64_t count, std::int64_t first,
                       const std::function<void(std::int64_t)>& end) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint8_t byte = bytes[i];
    if (byte == '\n') {
      blank_line_ = blank_line_ || blank_;
      blank_ = true;
      line_ = first + i + 1;
    }
    if (is_one_of(" \t\r\n", byte)) {
      spaced_ = stopped_;
      continue;
    }
    if (text_ && blank_line_ && (groups_ != GroupsAre::lead || paragraphs_++ < 2))
      end(line_);
    else if (groups_ == GroupsAre::sentences && spaced_)
      end(first + i);
    text_ = true;
    blank_line_ = blank_ = false;
    stopped_ = is_one_of(".!?", byte) || (stopped_ && !spaced_ && is_one_of("\"')]", byte));
    spaced_ = false;
  }
}

void GroupFinder::end_document(std::int64_t place) {
  text_ = blank_line_ = stopped_ = spaced_ = false;
  blank_ = true;
  line_ = place;
  paragraphs_ = 0;
}

std::vector<std::int64_t> groups_of(const std::vector<std::uint8_t>& document, GroupsAre groups) {
  std::vector<std::int64_t> ends{0};
  GroupFinder(groups).read(document.data(), std::ssize(document), 0, [&](std::int64_t end) { ends.push_back(end); });
  ends.push_back(std::ssize(document));
  return ends;
}

}  // namespace longstride
