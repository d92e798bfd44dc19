// Documents, and the groups within them, in the bytes of a dataset that is being written.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "datasets/group_finder.h"
#include "datasets/prepare/dataset_writer.h"
#include "datasets/prepare/documents/fasta.h"
#include "datasets/prepare/documents/labels.h"
#include "datasets/prepare/prepare.h"

namespace longstride {

// A file of the input. Documents of copies have the same key, so that all go to the same split.
struct DocumentFile {
  std::string name, below;  // in messages; within its input
  std::int64_t key = 0;
};

// The splits of documents that stay whole: each goes to one at random.
struct RandomSplits {
  std::array<double, 3> fractions{};
  std::uint64_t seed = 1;
  SplitId of(std::int64_t file_key, std::int64_t document) const;
};

// Appends bytes to a dataset and notes where documents and groups end. A document ends by the rule of the
// configuration, with its file, and where a split ends: one that a split cuts counts as two. Empty documents are left
// out.
//  - A mark is removed from the bytes, also where a split cuts it.
//  - A line keeps its line feed.
//  - A record of FASTA is its letters (fasta.h).
// With labels each document has its own, by its name: the first word of a record, the name of a file within its input,
// or the number of a line or of what a mark ends, from 1.
class DocumentCutter {
 public:
  // group_labels: a number for each group of a document.
  DocumentCutter(DatasetWriter& writer, const DocumentRule& rule, DocumentLabels* labels = nullptr,
                 std::optional<RandomSplits> splits = {}, DocumentLabels* group_labels = nullptr);

  void begin_file(const DocumentFile& file);  // may be left out if nothing has a name
  // split: of no meaning with RandomSplits.
  void append(SplitId split, const std::uint8_t* bytes, std::int64_t count);
  void end_file();  // no document continues
  std::int64_t marks() const { return marks_; }
  std::int64_t records_without_letters() const { return fasta_ ? fasta_->without_letters() : 0; }
  std::int64_t documents() const { return documents_; }  // that are not empty

 private:
  void find_borders();
  void append_before_marks(SplitId split, const std::uint8_t* bytes, std::int64_t count);
  void append_lines(SplitId split, const std::uint8_t* bytes, std::int64_t count);
  void give_up(std::size_t held);  // the beginning of what may have been a mark is text
  void write(SplitId split, const std::uint8_t* bytes, std::int64_t count);
  void begin_record(const std::string& name);
  void end_document();
  void take_labels(const std::string& name, const std::string& where, bool own);
  void append_labels();
  bool has_own_name(const DocumentLabels* labels) const;

  DatasetWriter& writer_;
  const DocumentRule& rule_;
  DocumentLabels *labels_, *group_labels_;
  std::optional<RandomSplits> splits_;
  std::optional<FastaReader> fasta_;
  DocumentFile file_;
  std::int64_t documents_ = 0, of_file_ = 0;  // that have ended; that have begun in this file
  bool open_ = false;                         // a document has bytes
  std::int64_t bytes_ = 0;                    // length of the open document so far
  struct Taken {
    std::string name;  // file, record or document whose labels these are
    std::vector<std::uint16_t> labels;
  };
  Taken taken_, taken_of_groups_;
  std::int64_t groups_before_ = 0;                           // in the split, when the document began
  SplitId split_ = SplitId::train, given_ = SplitId::train;  // the last bytes', and those that are read
  std::vector<SplitId> held_;         // the splits of bytes that may begin a mark, which they equal so far
  std::vector<std::size_t> borders_;  // the longest end of each beginning of the mark that is a beginning too
  std::int64_t marks_ = 0;
  GroupFinder groups_;
};

}  // namespace longstride
