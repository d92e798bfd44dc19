#include "datasets/prepare/documents/document_cutter.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/philox.h"

namespace longstride {

SplitId RandomSplits::of(std::int64_t file_key, std::int64_t document) const {
  const std::uint32_t domain = kernels::domain_of(kernels::Purpose::split, 1);
  const auto drawn =
      kernels::philox(seed, static_cast<std::uint64_t>(document), static_cast<std::uint32_t>(file_key), domain);
  const double at = static_cast<double>(drawn.word[0]) * 0x1p-32;
  if (at < fractions[0]) return SplitId::train;
  return at < fractions[0] + fractions[1] || fractions[2] == 0 ? SplitId::valid : SplitId::test;
}

DocumentCutter::DocumentCutter(DatasetWriter& writer, const DocumentRule& rule, DocumentLabels* labels,
                               std::optional<RandomSplits> splits, DocumentLabels* group_labels)
    : writer_(writer),
      rule_(rule),
      labels_(labels),
      group_labels_(group_labels),
      splits_(splits),
      groups_(rule.groups) {
  find_borders();
  if (rule.documents != DocumentsAre::fasta) return;
  fasta_.emplace(rule.letters, rule.other_letters,
                 FastaReader::Receiver{
                     [this](const std::string& name) { begin_record(name); },
                     [this](const std::uint8_t* letters, std::int64_t count) { write(given_, letters, count); }});
}

// Lines, and what marks end, are named by their numbers.
bool DocumentCutter::has_own_name(const DocumentLabels* labels) const {
  return !labels->of_files() && rule_.documents != DocumentsAre::files;
}

void DocumentCutter::begin_file(const DocumentFile& file) {
  file_ = file;
  of_file_ = 0;
  if (fasta_) fasta_->begin_file(file.name);
  take_labels(file.below, file.name, false);
}

void DocumentCutter::begin_record(const std::string& name) {
  end_document();
  take_labels(name, fasta_->place(), true);
}

// own: the name is a document's, rather than its file's.
void DocumentCutter::take_labels(const std::string& name, const std::string& where, bool own) {
  for (const auto& [table, taken] : {std::pair{labels_, &taken_}, std::pair{group_labels_, &taken_of_groups_}})
    if (table != nullptr && has_own_name(table) == own) *taken = {name, table->of(name, where)};
}

// Those of the document that has ended.
void DocumentCutter::append_labels() {
  if (labels_ != nullptr) {
    labels_->check_length(taken_.name, bytes_);
    writer_.append_labels(split_, taken_.labels);
  }
  if (group_labels_ == nullptr) return;
  group_labels_->check_groups(taken_of_groups_.name, writer_.groups(split_) - groups_before_);
  writer_.append_group_labels(split_, taken_of_groups_.labels);
}

void DocumentCutter::append(SplitId split, const std::uint8_t* bytes, std::int64_t count) {
  if (rule_.documents == DocumentsAre::marks)
    append_before_marks(split, bytes, count);
  else if (rule_.documents == DocumentsAre::lines)
    append_lines(split, bytes, count);
  else if (fasta_)
    given_ = split, fasta_->read(bytes, count);
  else
    write(split, bytes, count);
}

void DocumentCutter::end_file() {
  if (fasta_) fasta_->end_file();
  give_up(held_.size());
  end_document();
}

// As Knuth, Morris and Pratt (1977) do.
void DocumentCutter::find_borders() {
  borders_.assign(rule_.mark.size() + 1, 0);
  for (std::size_t n = 2; n <= rule_.mark.size(); ++n) {
    std::size_t border = borders_[n - 1];
    while (border > 0 && rule_.mark[border] != rule_.mark[n - 1]) border = borders_[border];
    borders_[n] = rule_.mark[border] == rule_.mark[n - 1] ? border + 1 : 0;
  }
}

void DocumentCutter::append_before_marks(SplitId split, const std::uint8_t* bytes, std::int64_t count) {
  const std::string& mark = rule_.mark;
  for (std::int64_t i = 0; i < count;) {
    if (held_.empty()) {
      const void* const found = std::memchr(bytes + i, mark.front(), static_cast<std::size_t>(count - i));
      const std::int64_t next = found == nullptr ? count : static_cast<const std::uint8_t*>(found) - bytes;
      write(split, bytes + i, next - i);
      i = next;
      if (i == count) return;
    }
    while (!held_.empty() && bytes[i] != static_cast<std::uint8_t>(mark[held_.size()]))
      give_up(held_.size() - borders_[held_.size()]);
    if (bytes[i] != static_cast<std::uint8_t>(mark[held_.size()])) continue;  // the same byte again, as text
    held_.push_back(split);
    ++i;
    if (held_.size() < mark.size()) continue;
    held_.clear();
    ++marks_;
    end_document();
  }
}

void DocumentCutter::append_lines(SplitId split, const std::uint8_t* bytes, std::int64_t count) {
  while (count > 0) {
    const void* const found = std::memchr(bytes, '\n', static_cast<std::size_t>(count));
    const std::int64_t line = found == nullptr ? count : static_cast<const std::uint8_t*>(found) - bytes + 1;
    write(split, bytes, line);
    if (found != nullptr) end_document();
    bytes += line, count -= line;
  }
}

void DocumentCutter::give_up(std::size_t held) {
  const auto* const mark = reinterpret_cast<const std::uint8_t*>(rule_.mark.data());
  for (std::size_t i = 0; i < held; ++i) write(held_[i], mark + i, 1);
  held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(held));
}

void DocumentCutter::write(SplitId split, const std::uint8_t* bytes, std::int64_t count) {
  if (count == 0) return;
  if (splits_) split = open_ ? split_ : splits_->of(file_.key, of_file_);
  if (split != split_) end_document();
  if (!open_) {
    ++of_file_;
    groups_before_ = writer_.groups(split);
  }
  open_ = true;
  bytes_ += count;
  split_ = split;
  if (rule_.groups != GroupsAre::none)
    groups_.read(bytes, count, writer_.bytes(split_), [&](std::int64_t end) { writer_.end_group(split_, end); });
  writer_.append(split, bytes, count);
}

void DocumentCutter::end_document() {
  if (rule_.documents == DocumentsAre::joined) return;
  if (rule_.groups != GroupsAre::none) writer_.end_group(split_, writer_.bytes(split_));
  if (writer_.end_document(split_)) {
    ++documents_;
    if (!fasta_) take_labels(std::to_string(documents_), file_.name, true);
    append_labels();
  }
  bytes_ = 0;
  open_ = false;
  groups_.end_document(writer_.bytes(split_));
}

}  // namespace longstride
