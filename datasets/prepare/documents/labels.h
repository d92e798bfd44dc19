// Labels of documents, for `prepare bytes --labels`: a class for each, several labels that hold each by itself, or the
// span of an answer.
//
// A table has a line per document: its name, a tab, and a class, labels separated by commas, or a span such as 12-40:
// from its first byte, counted from 0, to the byte behind it. One line with a comma, or with nothing behind the tab,
// says that all have labels; if every line has a span, all have spans. A table of groups has a number for each group of
// the document instead, separated by spaces. Names of labels are numbered in the order given, or sorted: those that are
// whole numbers by value, others by their bytes. Empty lines do not count, and lines may end as on Windows.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace longstride {

enum class LabelsAre : std::uint8_t { classes, labels, spans, groups };

class DocumentLabels {
 public:
  // path: in messages. given: names in their order, separated by commas; empty: those that occur. UserError, with file
  // and line, for a line without a tab or name, a document or label twice, a class that is not given, fewer than two
  // names, or more than there may be.
  static DocumentLabels of_table(std::string_view text, const std::string& path, const std::string& given);
  static DocumentLabels read_table(const std::string& path, const std::string& given);
  // The same of a table of groups.
  static DocumentLabels of_groups(std::string_view text, const std::string& path);
  static DocumentLabels read_groups(const std::string& path);
  // The first folders in which the names of files differ. UserError for a file that is in none.
  static DocumentLabels of_folders(const std::vector<std::string>& files, const std::string& given);

  bool of_files() const { return of_files_; }  // by name of a document's file, rather than its own
  LabelsAre kind() const { return kind_; }
  const std::vector<std::string>& names() const { return names_; }
  bool wide() const { return kind_ == LabelsAre::spans || (kind_ == LabelsAre::classes && names_.size() > 256); }

  // The number of the class, 0 or 1 for each label, begin and end of the span, or the groups' numbers. where: the
  // document, in messages. UserError if there are none, or if the table's were another document's before.
  std::vector<std::uint16_t> of(const std::string& name, const std::string& where);
  // UserError if the span of the document with this name ends behind its bytes.
  void check_length(const std::string& name, std::int64_t bytes) const;
  // UserError if the document with this name has not as many groups as labels of them.
  void check_groups(const std::string& name, std::int64_t groups) const;
  // UserError if the table has a document that was not asked for.
  void finish() const;

 private:
  struct Row {
    std::int64_t line = 0;
    std::vector<std::string> labels = {};
    std::vector<std::uint16_t> numbers = {};  // a span, or the groups' numbers
    std::string seen = {};
  };
  DocumentLabels(std::string path, bool of_files) : path_(std::move(path)), of_files_(of_files) {}
  void add_lines(std::string_view text);
  void add_line(std::string_view line, std::int64_t number);
  void number(const std::string& given);
  void read_spans();
  void read_numbers();
  void check_numbered() const;
  std::string where_is(const Row& row) const;
  const char* one() const { return kind_ == LabelsAre::classes ? "class" : "label"; }

  std::string path_;  // the table, or "folder"
  bool of_files_;
  LabelsAre kind_ = LabelsAre::classes;
  std::map<std::string, Row> rows_;  // by name
  std::vector<std::string> names_;
  std::map<std::string, std::uint16_t> numbers_;
};

}  // namespace longstride
