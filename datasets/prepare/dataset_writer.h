// Writes a prepared dataset piece by piece: memory holds one buffer per split, whatever the size of the dataset. The
// file appears under its name when commit() returns, after it was read back and compared with its checksums; without
// commit() nothing is left. A full disk is a UserError from the call that notices it.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "datasets/dataset.h"

namespace longstride {

enum class SplitId : std::uint8_t { train, valid, test };

class DatasetWriter {
 public:
  // info.split and the checksums are written by commit(). UserError if `path` cannot be written, or already exists and
  // `replace` is false.
  DatasetWriter(const std::string& path, const DatasetInfo& info, bool replace);
  ~DatasetWriter();

  // Images: whole ones. Text and sound: any number of bytes.
  void append(SplitId split, const std::uint8_t* bytes, std::int64_t count);
  // Tokens, below info.vocabulary, and how many bytes of text they are; 0: not known.
  void append_tokens(SplitId split, std::span<const std::uint16_t> tokens, std::int64_t text_bytes);
  // One sequence's; as many for every one. They have 16 bits if info.wide_labels says so, and 8 otherwise.
  void append_labels(SplitId split, std::span<const std::uint16_t> labels);
  // Sound: what was appended since the last boundary is one file. Text: one document, unless it is nothing: then false.
  void end_file(SplitId split);
  bool end_document(SplitId split);
  // Text: the group that is being read ends behind the first `at` bytes of the split; nothing if it is empty. Groups
  // end in order.
  void end_group(SplitId split, std::int64_t at);
  // As many as groups ended, in order.
  void append_group_labels(SplitId split, std::span<const std::uint16_t> labels);
  void add_source(const SourceFile& source);

  std::int64_t bytes(SplitId split) const;  // or tokens, so far
  std::int64_t files(SplitId split) const;
  std::int64_t groups(SplitId split) const;

  void commit(const std::string& split_rule);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// UserError if `path`, the value of `option`, exists and may not be replaced, is a folder, is one of the inputs,
// which would be lost, or is below what is not a folder. Call it before long work.
void check_output(const std::string& path, bool replace, const std::vector<std::string>& inputs,
                  const char* option = "--output");

// Makes the folders that the file `path` lacks, and removes those that are still empty at the end, as after an error.
// UserError if they cannot be made. Lives longer than what writes the file.
class FoldersOf {
 public:
  explicit FoldersOf(const std::string& path);
  ~FoldersOf();
  FoldersOf(const FoldersOf&) = delete;
  FoldersOf& operator=(const FoldersOf&) = delete;

 private:
  void remove_empty() const;

  std::vector<std::string> made_;  // the outermost first
};

}  // namespace longstride
