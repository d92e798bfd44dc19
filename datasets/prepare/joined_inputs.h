// The inputs of `prepare bytes` as one run of bytes, one after another in the order given, with nothing between them,
// those of valid and test behind those of train.
// A folder stands for its files, sorted by path, without hidden ones. Each input is read in pieces; compressed inputs
// are read twice, since their length has to be known to divide them. What may be a copy of another file is read once
// more.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "datasets/formats/byte_input.h"
#include "datasets/prepare/byte_content.h"
#include "datasets/prepare/copies.h"
#include "datasets/prepare/dataset_writer.h"
#include "datasets/prepare/prepare.h"

namespace longstride {

class JoinedInputs {
 public:
  // Reads standard input, and measures every input. UserError for an input that is absent, empty, given twice, damaged,
  // the output, or no text, and for copies if they are refused.
  JoinedInputs(const PrepareBytesConfig& config, const PrepareOutput& output);
  ~JoinedInputs();

  std::int64_t bytes() const { return bytes_; }
  // The files that read() yields: inputs, or files of archives.
  const std::vector<ContentPart>& parts() const { return parts_; }
  const Copies& copies() const { return *copies_; }
  // The split of a part where splits are given.
  SplitId split_of(std::size_t part) const { return splits_[part]; }
  const std::string& name() const { return name_; }  // a name for all inputs, for messages
  // One sentence about the packed inputs; empty without any.
  std::string packed_note() const;
  // One sentence about inputs that are named like packed files and are none; empty without any.
  std::string misnamed_note() const;

  // The next `count` bytes, which must be there. UserError if an input has changed since it was measured.
  void read(std::uint8_t* out, std::size_t count);
  // The files as they were given: packed ones with the size and the checksum of the file. After all bytes were read.
  std::vector<SourceFile> finish();

 private:
  struct Input {
    std::string path;   // "-": standard input
    std::string below;  // name within the folder that is the input; otherwise that of the file
    SplitId split = SplitId::train;
    bool named = false;  // by the user, rather than found in a folder
    Packing packing;
    bool misnamed = false;
    std::int64_t file_bytes = 0, bytes = 0, links = 0;
    std::size_t parts = 0;
    Fingerprint print = {};  // set for a file that is not packed
  };
  struct Current;

  void list(const std::vector<std::string>& paths, SplitId split);
  void look_at(const PrepareBytesConfig& config, const PrepareOutput& output);
  void measure(Input& input);
  ContentSize size_of_texts(const Input& input);
  std::vector<std::string> sha256_of_parts(const std::vector<std::int64_t>& wanted, const PrepareOutput& output) const;
  std::shared_ptr<const Blob> open(const Input& input) const;
  std::unique_ptr<UnsizedStream> content_of(const Blob& blob, const Packing& packing) const;
  void open_next();
  void close_current();

  std::shared_ptr<const Blob> standard_input_;
  std::vector<Input> inputs_;
  std::vector<ContentPart> parts_;  // files of all inputs, in order
  std::vector<SplitId> splits_;     // of the parts
  std::string field_, mark_;        // of records, if any
  std::optional<Copies> copies_;
  std::string name_;
  std::int64_t bytes_ = 0;
  std::optional<InputProgress> progress_;
  std::size_t next_ = 0;  // the first input not yet opened
  std::unique_ptr<Current> current_;
  std::vector<SourceFile> sources_;
};

}  // namespace longstride
