#include "datasets/prepare/documents/labels.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <utility>

#include "datasets/formats/byte_input.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "framework/core/text/printable.h"

namespace longstride {
namespace {

constexpr std::size_t most_classes = 65536, most_labels = 4096;  // as objectives and datasets have
constexpr std::int64_t most_number = 65535;                      // the writer keeps 16 bits

// Without white space at both ends.
std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \r");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \r") + 1 - begin);
}

std::vector<std::string> divided(std::string_view text, char at_every = ',') {
  std::vector<std::string> out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(at_every, at), text.size());
    out.emplace_back(trimmed(text.substr(at, end - at)));
    at = end + 1;
  }
  return out;
}

bool is_number(const std::string& name) {
  return !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == name.npos &&
         (name.size() == 1 || name[0] != '0');
}

// "12-40".
bool is_span(const std::string& text) {
  const std::size_t dash = text.find('-');
  return dash != text.npos && is_number(text.substr(0, dash)) && is_number(text.substr(dash + 1));
}

// Whole numbers come first, by value.
bool comes_before(const std::string& a, const std::string& b) {
  const bool numbers = is_number(a) && is_number(b);
  if (!numbers) return std::pair(!is_number(a), a) < std::pair(!is_number(b), b);
  return std::pair(a.size(), a) < std::pair(b.size(), b);
}

std::string text_of_table(const std::string& path) {
  constexpr std::uint64_t most = std::uint64_t{1} << 30;
  if (std::error_code failure; !std::filesystem::is_regular_file(path, failure))
    throw user_error("{}: is no file; name a table of documents and their labels, or for --labels the word folder",
                     path);
  const FileBlob blob(path);
  if (blob.size() > most)
    throw user_error("{}: has {} bytes, more than a table of labels may have", path,
                     thousands(static_cast<std::int64_t>(blob.size())));
  std::string text(static_cast<std::size_t>(blob.size()), '\0');
  blob.read(0, text.data(), text.size());
  return text;
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t most = 12;
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i)
    out += (i == 0 ? "" : ", ") + printable_beginning(names[i]);
  return names.size() > most ? out + ", .." : out;
}

}  // namespace

DocumentLabels DocumentLabels::of_table(std::string_view text, const std::string& path, const std::string& given) {
  DocumentLabels labels(path, false);
  labels.add_lines(text);
  labels.number(given);
  return labels;
}

DocumentLabels DocumentLabels::of_groups(std::string_view text, const std::string& path) {
  DocumentLabels labels(path, false);
  labels.kind_ = LabelsAre::groups;
  labels.add_lines(text);
  labels.read_numbers();
  return labels;
}

DocumentLabels DocumentLabels::read_groups(const std::string& path) { return of_groups(text_of_table(path), path); }

DocumentLabels DocumentLabels::read_table(const std::string& path, const std::string& given) {
  return of_table(text_of_table(path), path, given);
}

DocumentLabels DocumentLabels::of_folders(const std::vector<std::string>& files, const std::string& given) {
  DocumentLabels labels("folder", true);
  std::vector<std::filesystem::path> rests(files.begin(), files.end());
  // Folders that hold all files divide none.
  const auto first_of = [](const std::filesystem::path& rest) {
    return rest.has_parent_path() ? rest.begin()->string() : std::string();
  };
  while (
      !rests.empty() && !first_of(rests[0]).empty() &&
      std::all_of(rests.begin(), rests.end(), [&](const auto& rest) { return first_of(rest) == first_of(rests[0]); }))
    for (std::filesystem::path& rest : rests) rest = rest.lexically_relative(*rest.begin());
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string folder = first_of(rests[i]);
    if (folder.empty())
      throw user_error("{}: is in no folder that could be its class; give --input the folder of the classes' folders",
                       files[i]);
    labels.rows_[files[i]] = {static_cast<std::int64_t>(i), {folder}, {}};
  }
  labels.number(given);
  return labels;
}

void DocumentLabels::add_lines(std::string_view text) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  std::int64_t line = 1;
  for (std::size_t at = 0; at < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    add_line(text.substr(at, end - at), line);
    at = end + 1;
  }
  if (rows_.empty())
    throw user_error("{}: is empty; each line is the name of a document, a tab, and its class or labels", path_);
}

std::string DocumentLabels::where_is(const Row& row) const { return fmt::format("{}:{}", path_, row.line); }

void DocumentLabels::add_line(std::string_view line, std::int64_t number) {
  if (trimmed(line).empty()) return;
  Row row{number, {}, {}};
  const std::size_t tab = line.find('\t');
  const std::string name(trimmed(line.substr(0, tab)));
  if (tab == line.npos || name.empty() || line.find('\t', tab + 1) != line.npos)
    throw user_error(
        "{}: is '{}', but a line is the name of a document, a tab, and its class or labels, separated by commas",
        where_is(row), printable_beginning(line));
  if (const auto before = rows_.find(name); before != rows_.end())
    throw user_error("{}: has document '{}' a second time, after line {}; give each document one line", where_is(row),
                     printable_beginning(name), before->second.line);
  const std::string_view rest = trimmed(line.substr(tab + 1));
  if (kind_ == LabelsAre::groups) {
    if (!rest.empty()) row.labels = divided(rest, ' ');
    rows_.emplace(name, std::move(row));
    return;
  }
  if (!rest.empty()) row.labels = divided(rest);
  if (row.labels.size() != 1) kind_ = LabelsAre::labels;
  std::set<std::string> once;
  for (const std::string& label : row.labels) {
    if (label.empty())
      throw user_error("{}: document '{}' has a label without a name; separate labels by one comma", where_is(row),
                       printable_beginning(name));
    if (!once.insert(label).second)
      throw user_error("{}: document '{}' has the label '{}' twice; name it once", where_is(row),
                       printable_beginning(name), printable_beginning(label));
  }
  rows_.emplace(name, std::move(row));
}

void DocumentLabels::number(const std::string& given) {
  if (given.empty() && !of_files_) read_spans();
  if (kind_ == LabelsAre::spans) return;
  std::set<std::string> all;
  for (const auto& [name, row] : rows_) all.insert(row.labels.begin(), row.labels.end());
  names_ = given.empty() ? std::vector<std::string>(all.begin(), all.end()) : divided(given);
  if (given.empty()) std::sort(names_.begin(), names_.end(), comes_before);
  check_numbered();
  for (std::size_t i = 0; i < names_.size(); ++i)
    if (names_[i].empty() || !numbers_.emplace(names_[i], static_cast<std::uint16_t>(i)).second)
      throw user_error("--classes is '{}', but names must be separated by one comma each and differ; '{}' does not",
                       printable_beginning(given), printable_beginning(names_[i]));
  for (const auto& [name, row] : rows_)
    for (const std::string& label : row.labels)
      if (!numbers_.contains(label))
        throw user_error("{}: has the {} '{}', but --classes is {}; add it there, or correct the {}",
                         of_files_ ? printable(name) : where_is(row), one(), printable_beginning(label), listed(names_),
                         one());
}

// If every line has one. Where most have, the first of the others is a mistake.
void DocumentLabels::read_spans() {
  const Row* first = nullptr;
  std::size_t spans = 0;
  for (const auto& [name, row] : rows_)
    if (row.labels.size() == 1 && is_span(row.labels[0]))
      ++spans;
    else if (first == nullptr || row.line < first->line)
      first = &row;
  if (2 * spans <= rows_.size()) return;
  if (first != nullptr)
    throw user_error(
        "{}: has '{}', but most lines have spans, such as 12-40; write one, with twice the same number where there is "
        "no answer",
        where_is(*first), printable_beginning(fmt::format("{}", fmt::join(first->labels, ","))));
  kind_ = LabelsAre::spans;
  for (auto& [name, row] : rows_) {
    const std::string& text = row.labels[0];
    const std::size_t dash = text.find('-');
    const std::int64_t begin = std::stoll(text.substr(0, dash)), end = std::stoll(text.substr(dash + 1));
    if (begin > end || end > most_number)
      throw user_error(
          "{}: document '{}' has the span {}, but a span goes from its first byte to the one behind it, "
          "both at most {}; twice the same is no answer",
          where_is(row), printable_beginning(name), text, thousands(most_number));
    row.numbers = {static_cast<std::uint16_t>(begin), static_cast<std::uint16_t>(end)};
  }
}

void DocumentLabels::read_numbers() {
  for (auto& [name, row] : rows_)
    for (const std::string& number : row.labels) {
      if (!is_number(number) || std::stoll(number) > most_number)
        throw user_error(
            "{}: document '{}' has the label '{}', but a group has a number from 0 to {}, the next one behind one "
            "space",
            where_is(row), printable_beginning(name), printable_beginning(number), thousands(most_number));
      row.numbers.push_back(static_cast<std::uint16_t>(std::stoll(number)));
    }
}

void DocumentLabels::check_groups(const std::string& name, std::int64_t groups) const {
  const Row& row = rows_.at(name);
  if (std::ssize(row.numbers) != groups)
    throw user_error("{}: document '{}' has {} of groups, but {}; correct the line, or choose other --groups",
                     where_is(row), printable_beginning(name), counted(std::ssize(row.numbers), "label"),
                     counted(groups, "group"));
}

void DocumentLabels::check_length(const std::string& name, std::int64_t bytes) const {
  if (kind_ != LabelsAre::spans) return;
  const Row& row = rows_.at(name);
  if (row.numbers[1] > bytes)
    throw user_error("{}: the span {} of document '{}' ends behind its {} bytes; correct it", where_is(row),
                     row.labels[0], printable_beginning(name), thousands(bytes));
}

void DocumentLabels::check_numbered() const {
  const std::size_t most = kind_ == LabelsAre::classes ? most_classes : most_labels;
  if (kind_ == LabelsAre::classes && names_.size() < 2)
    throw user_error("{}: has {}, but classes are told apart from at least two; {}", path_,
                     names_.empty() ? "none" : "only the class '" + printable_beginning(names_[0]) + "'",
                     of_files_ ? "give --input the folder of the classes' folders" : "name the others too");
  if (names_.empty() || names_.size() > most)
    throw user_error("{}: has {} {}, but there may be 1 to {}; keep the most frequent ones", path_,
                     thousands(std::ssize(names_)), kind_ == LabelsAre::classes ? "classes" : "labels",
                     thousands(static_cast<std::int64_t>(most)));
}

std::vector<std::uint16_t> DocumentLabels::of(const std::string& name, const std::string& where) {
  const auto found = rows_.find(name);
  if (found == rows_.end())
    throw user_error("{}: document '{}' is not in {}; give it a line there, or take it out of the input", where,
                     printable_beginning(name), path_);
  Row& row = found->second;
  if (!of_files_ && !row.seen.empty())
    throw user_error("{}: document '{}' has the name of that in {}, but line {} of {} is one document's; rename one",
                     where, printable_beginning(name), row.seen, row.line, path_);
  row.seen = where;
  if (kind_ == LabelsAre::spans || kind_ == LabelsAre::groups) return row.numbers;
  if (kind_ == LabelsAre::classes) return {numbers_.at(row.labels[0])};
  std::vector<std::uint16_t> out(names_.size());
  for (const std::string& label : row.labels) out[numbers_.at(label)] = 1;
  return out;
}

void DocumentLabels::finish() const {
  if (of_files_) return;
  const Row* first = nullptr;
  std::string name;
  for (const auto& [document, row] : rows_)
    if (row.seen.empty() && (first == nullptr || row.line < first->line)) first = &row, name = document;
  if (first != nullptr)
    throw user_error("{}: names document '{}', which the input lacks; correct the name, or take the line out",
                     where_is(*first), printable_beginning(name));
}

}  // namespace longstride
