// Where groups within documents end: sentences, paragraphs, or a title, a lead and the rest.
//  - A paragraph ends before the first line that is not blank after one that is, or several. Blank lines hold nothing
//    but spaces, tabs and carriage returns.
//  - A sentence ends where a paragraph does, and where white space follows a stop, exclamation or question mark and any
//    closing quotes and brackets.
//  - A title and a lead are the first two paragraphs; the rest of the document is a group.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "datasets/prepare/prepare.h"

namespace longstride {

class GroupFinder {
 public:
  explicit GroupFinder(GroupsAre groups) : groups_(groups) {}

  // The next bytes of a document, which begin at `first`. Calls end(place) for every group that they end.
  void read(const std::uint8_t* bytes, std::int64_t count, std::int64_t first,
            const std::function<void(std::int64_t)>& end);
  void end_document(std::int64_t place);

 private:
  GroupsAre groups_;
  // The group that is being read:
  bool text_ = false;                       // it has more than white space
  bool blank_line_ = false, blank_ = true;  // its last whole lines are blank; so far, this one is
  bool stopped_ = false, spaced_ = false;   // behind a stop; and behind white space after it
  std::int64_t line_ = 0;                   // place of the line that is being read
  int paragraphs_ = 0;                      // that have ended in the document
};

// The ends of a document's groups, from 0 to its length.
std::vector<std::int64_t> groups_of(const std::vector<std::uint8_t>& document, GroupsAre groups);

}  // namespace longstride
