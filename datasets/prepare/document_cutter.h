// Documents, and the groups within them, in the bytes of a dataset that is being written.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "datasets/group_finder.h"
#include "datasets/prepare/dataset_writer.h"
#include "datasets/prepare/prepare.h"

namespace longstride {

// Appends bytes to a dataset and notes where documents and groups end. A document ends by the rule of the
// configuration, with its file, and where a split ends: one that a split cuts counts as two. Empty documents are left
// out.
//  - A mark is removed from the bytes, also where a split cuts it.
//  - A line keeps its line feed.
class DocumentCutter {
 public:
  DocumentCutter(DatasetWriter& writer, const DocumentRule& rule) : writer_(writer), rule_(rule), groups_(rule.groups) {
    find_borders();
  }

  void append(SplitId split, const std::uint8_t* bytes, std::int64_t count);
  void end_file();  // no document continues
  std::int64_t marks() const { return marks_; }

 private:
  void find_borders();
  void append_before_marks(SplitId split, const std::uint8_t* bytes, std::int64_t count);
  void append_lines(SplitId split, const std::uint8_t* bytes, std::int64_t count);
  void give_up(std::size_t held);  // the beginning of what may have been a mark is text
  void write(SplitId split, const std::uint8_t* bytes, std::int64_t count);
  void end_document();

  DatasetWriter& writer_;
  const DocumentRule& rule_;
  SplitId split_ = SplitId::train;    // the last bytes'
  std::vector<SplitId> held_;         // the splits of bytes that may begin a mark, which they equal so far
  std::vector<std::size_t> borders_;  // the longest end of each beginning of the mark that is a beginning too
  std::int64_t marks_ = 0;
  GroupFinder groups_;
};

}  // namespace longstride
