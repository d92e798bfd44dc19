#include "datasets/prepare/joined_inputs.h"

#include <algorithm>
#include <filesystem>

#include "datasets/formats/input_files.h"
#include "datasets/prepare/dataset_writer.h"
#include "datasets/prepare/standard_input.h"
#include "datasets/prepare/text/field_stream.h"
#include "framework/core/errors.h"
#include "framework/core/files/sha256.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

// Reports what is read of a blob as progress.
class ObservedBlob final : public Blob {
 public:
  ObservedBlob(std::shared_ptr<const Blob> blob, InputProgress& progress)
      : blob_(std::move(blob)), progress_(progress) {}
  const std::string& name() const override { return blob_->name(); }
  std::uint64_t size() const override { return blob_->size(); }
  void read(std::uint64_t offset, void* out, std::size_t count) const override {
    blob_->read(offset, out, count);
    progress_.add(static_cast<std::int64_t>(count));
  }
  void check_unchanged() const override { blob_->check_unchanged(); }

 private:
  std::shared_ptr<const Blob> blob_;
  InputProgress& progress_;
};

std::string sha256_of(const Blob& blob) {
  Sha256 sha;
  BlobStream stream(blob, &sha);
  std::vector<std::uint8_t> buffer(std::size_t{1} << 20);
  while (stream.left() > 0)
    stream.read(buffer.data(), static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), stream.left())));
  return sha.hex();
}

}  // namespace

// The input that is being read.
struct JoinedInputs::Current {
  Current(std::shared_ptr<const Blob> opened, InputProgress& progress)
      : blob(opened), observed(std::move(opened), progress) {}

  std::shared_ptr<const Blob> blob;
  ObservedBlob observed;
  std::unique_ptr<UnsizedStream> content;
  std::int64_t left = 0;
  Sha256 sha;  // checksum of the bytes read
};

JoinedInputs::~JoinedInputs() = default;

JoinedInputs::JoinedInputs(const PrepareBytesConfig& config, const PrepareOutput& output)
    : field_(config.field), mark_(config.documents.documents == DocumentsAre::lines ? record_mark : "") {
  if (config.inputs.empty()) throw user_error("--input is needed: files, folders, or - for standard input");
  list(config.inputs, SplitId::train);
  list(config.valid_inputs, SplitId::valid);
  list(config.test_inputs, SplitId::test);
  std::vector<std::string> files;
  bool from_standard_input = false;
  for (const Input& input : inputs_) {
    const bool standard = input.path == "-";
    if (standard && from_standard_input)
      throw user_error("--input - is given twice, but standard input can be read once; name every input once");
    from_standard_input = from_standard_input || standard;
    if (!standard) files.push_back(input.path);
  }
  check_distinct(files);
  if (from_standard_input) files.push_back("/dev/stdin");
  check_output(output.path, output.replace, files);
  const auto received = [&](std::int64_t bytes) {
    if (output.progress) output.progress(bytes, 0);
  };
  if (from_standard_input) standard_input_ = read_standard_input(output.path, received);

  look_at(config, output);
  for (Input& input : inputs_) measure(input);
  name_ = open(inputs_[0])->name();
  if (inputs_.size() > 1) name_ += " and " + counted(std::ssize(inputs_) - 1, "more input");
  if (bytes_ == 0) throw user_error("{}: is empty; there is nothing to prepare", config.inputs[0]);
  std::vector<Fingerprint> prints;
  for (const ContentPart& part : parts_) prints.push_back(part.print);
  copies_.emplace(
      prints, config.duplicates,
      [&](const std::vector<std::int64_t>& wanted) { return sha256_of_parts(wanted, output); },
      [&](std::int64_t i) { return parts_[static_cast<std::size_t>(i)].name; });
}

// How every input is packed, by its first bytes.
void JoinedInputs::look_at(const PrepareBytesConfig& config, const PrepareOutput& output) {
  std::int64_t work = 0;
  std::vector<std::pair<std::string, FileFormat>> no_text;
  for (Input& input : inputs_) {
    const auto blob = open(input);
    input.file_bytes = static_cast<std::int64_t>(blob->size());
    if (!config.raw) input.packing = packing_of(*blob);
    input.packing.any = config.any;
    input.misnamed = !config.raw && input.packing.none() && blob->size() > 0 && named_like_packed(input.path);
    if (!field_.empty() && input.packing.archive)
      throw user_error("{}: is an archive, but --field takes lines of files; unpack it to a folder and use that",
                       blob->name());
    work += input.file_bytes * (input.packing.none() && field_.empty() ? 1 : 2);
    const std::string head = beginning_of_content(*blob, input.packing);
    input.print = {input.file_bytes, head_of(head)};
    if (const FileFormat format = format_of(head); format.family != FormatFamily::none && !config.any)
      no_text.emplace_back(blob->name(), format);
  }
  progress_.emplace(output.progress, work);
  if (no_text.empty()) return;
  const auto& [name, format] = no_text.front();
  throw user_error("{}: {}{}; {}, {}", name, described(format),
                   no_text.size() > 1 ? ", like " + counted(std::ssize(no_text) - 1, "more input") : std::string(),
                   remedy_of(format), take_any);
}

void JoinedInputs::list(const std::vector<std::string>& paths, SplitId split) {
  for (const std::string& path : paths) {
    std::error_code absent;
    if (const auto kind = std::filesystem::status(path, absent).type();
        kind == std::filesystem::file_type::fifo || kind == std::filesystem::file_type::character)
      throw user_error("{}: is a pipe or a device; give what it yields as standard input, with --input -", path);
    if (path == "-" || !is_folder(path)) {
      inputs_.push_back({path, std::filesystem::path(path).filename().string(), split, true, {}});
      continue;
    }
    const std::vector<std::string> files = files_under(path);
    if (files.empty()) throw user_error("{}: holds no files; give a folder with files to read", path);
    for (const std::string& file : files)
      inputs_.push_back(
          {file, std::filesystem::path(file).lexically_relative(path).generic_string(), split, false, {}});
  }
}

void JoinedInputs::measure(Input& input) {
  ContentSize size = {input.file_bytes, 0, {{input.path == "-" ? "standard input" : input.path, input.print}}};
  if (!field_.empty())
    size = size_of_texts(input);
  else if (!input.packing.none())
    size = content_size(ObservedBlob(open(input), *progress_), input.packing, inputs_.size() == 1);
  const std::filesystem::path folder = std::filesystem::path(input.below).parent_path();
  for (ContentPart& part : size.parts)
    part.below = input.packing.archive ? (folder / part.below).lexically_normal().generic_string() : input.below;
  input.bytes = size.bytes, input.links = size.links, input.parts = size.parts.size();
  splits_.insert(splits_.end(), size.parts.size(), input.split);
  parts_.insert(parts_.end(), std::make_move_iterator(size.parts.begin()), std::make_move_iterator(size.parts.end()));
  if (input.bytes == 0 && input.named)
    throw user_error("{}: is empty; there is nothing to prepare", open(input)->name());
  bytes_ += input.bytes;
}

// All texts of a file are one part.
ContentSize JoinedInputs::size_of_texts(const Input& input) {
  const ObservedBlob blob(open(input), *progress_);
  const auto content = content_of(blob, input.packing);
  std::string buffer(std::size_t{1} << 18, '\0');
  Fingerprint print;
  for (std::size_t got = buffer.size(); got == buffer.size();) {
    got = content->read(buffer.data(), buffer.size());
    if (print.bytes == 0) print.head = head_of({buffer.data(), std::min(got, Fingerprint::head_bytes)});
    print.bytes += static_cast<std::int64_t>(got);
  }
  return {print.bytes, 0, {{blob.name(), print}}};
}

std::vector<std::string> JoinedInputs::sha256_of_parts(const std::vector<std::int64_t>& wanted,
                                                       const PrepareOutput& output) const {
  std::vector<std::string> sums;
  std::vector<std::uint8_t> buffer(std::size_t{1} << 20);
  std::size_t first = 0;  // part of the input
  for (const Input& input : inputs_) {
    const std::size_t end = first + input.parts;
    const auto is_wanted = [&] {
      return sums.size() < wanted.size() && wanted[sums.size()] < static_cast<std::int64_t>(end);
    };
    if (!is_wanted()) {
      first = end;
      continue;
    }
    const auto blob = open(input);
    const auto content = content_of(*blob, input.packing);
    for (; is_wanted(); ++first) {
      Sha256 sha;
      for (auto left = static_cast<std::size_t>(parts_[first].print.bytes); left > 0;) {
        output.looked_at(0);
        const std::size_t count = std::min(left, buffer.size());
        if (content->read(buffer.data(), count) != count)
          throw user_error("{}: has shrunk while it was being read; do not change a file while it is being read",
                           blob->name());
        sha.update(buffer.data(), count);
        left -= count;
      }
      if (wanted[sums.size()] == static_cast<std::int64_t>(first)) sums.push_back(sha.hex());
    }
    first = end;
  }
  return sums;
}

std::shared_ptr<const Blob> JoinedInputs::open(const Input& input) const {
  if (input.path == "-") return standard_input_;
  return std::make_shared<FileBlob>(input.path, Pointers::take);  // look_at() says which are pointers
}

std::unique_ptr<UnsizedStream> JoinedInputs::content_of(const Blob& blob, const Packing& packing) const {
  auto content = open_content(blob, packing);
  if (field_.empty()) return content;
  return std::make_unique<FieldStream>(std::move(content), blob.name(), field_, mark_);
}

std::string JoinedInputs::packed_note() const {
  std::int64_t count = 0, files = 0, unpacked = 0, links = 0;
  std::string name;
  for (const Input& input : inputs_) {
    if (input.packing.none()) continue;
    if (count == 0) name = open(input)->name();
    ++count;
    files += input.file_bytes;
    unpacked += input.bytes;
    links += input.links;
  }
  if (count == 0) return "";
  if (count > 1) name += " and " + counted(count - 1, "more packed input");
  return fmt::format("{}: {} bytes, which unpack to {}{}", name, thousands(files), thousands(unpacked),
                     links > 0 ? fmt::format("; left out {} to other files", counted(links, "link")) : "");
}

std::string JoinedInputs::misnamed_note() const {
  const auto misnamed = [](const Input& input) { return input.misnamed; };
  const auto first = std::find_if(inputs_.begin(), inputs_.end(), misnamed);
  if (first == inputs_.end()) return "";
  const auto more = std::count_if(first + 1, inputs_.end(), misnamed);
  return fmt::format("{}{}: named like a packed file, but does not begin like one; the bytes are used as they are",
                     first->path, more > 0 ? " and " + counted(more, "more input") : "");
}

void JoinedInputs::open_next() {
  const Input& input = inputs_[next_++];
  const auto blob = open(input);
  if (static_cast<std::int64_t>(blob->size()) != input.file_bytes)
    throw user_error("{}: had {} bytes at first and has {} now; do not change a file while it is being read",
                     blob->name(), input.file_bytes, blob->size());
  current_ = std::make_unique<Current>(blob, *progress_);
  current_->content = content_of(current_->observed, input.packing);
  current_->left = input.bytes;
}

void JoinedInputs::close_current() {
  const Input& input = inputs_[next_ - 1];
  if (std::uint8_t more = 0; current_->content->read(&more, 1) != 0)
    throw user_error("{}: has grown while it was being read; do not change a file while it is being read",
                     current_->blob->name());
  std::string sha = current_->sha.hex();
  if (!input.packing.none() || !field_.empty()) {
    sha = sha256_of(*current_->blob);
    current_->blob->check_unchanged();
  }
  sources_.push_back({current_->blob->name(), input.file_bytes, sha});
  current_ = nullptr;
}

void JoinedInputs::read(std::uint8_t* out, std::size_t count) {
  while (count > 0) {
    while (current_ == nullptr || current_->left == 0) {
      if (current_ != nullptr) close_current();
      LONGSTRIDE_CHECK(next_ < inputs_.size(), "{} more bytes are read than there are", count);
      open_next();
    }
    const auto wanted =
        static_cast<std::size_t>(std::min<std::int64_t>(current_->left, static_cast<std::int64_t>(count)));
    if (current_->content->read(out, wanted) != wanted)
      throw user_error("{}: has shrunk while it was being read; do not change a file while it is being read",
                       current_->blob->name());
    current_->sha.update(out, wanted);
    current_->left -= static_cast<std::int64_t>(wanted);
    out += wanted, count -= wanted;
  }
}

std::vector<SourceFile> JoinedInputs::finish() {
  if (current_ != nullptr) close_current();
  while (next_ < inputs_.size()) {  // empty files at the end
    open_next();
    close_current();
  }
  return std::move(sources_);
}

}  // namespace longstride
