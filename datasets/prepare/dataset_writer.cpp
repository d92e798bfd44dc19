#include "datasets/prepare/dataset_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "datasets/formats/byte_input.h"
#include "datasets/hdf5/hdf5_driver.h"
#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/files/sha256.h"

namespace longstride {
namespace {

constexpr std::int64_t chunk_bytes = std::int64_t{256} << 10;  // one random read from a large file
constexpr std::int64_t buffer_bytes = std::int64_t{4} << 20;
constexpr const char* tool_version = "longstride " LONGSTRIDE_VERSION;

// The HDF5 file that grows under a temporary name.
class OutputFile {
 public:
  OutputFile(const std::string& path, const std::string& temporary) : path_(path), medium_(temporary) {
    const hdf5::Lock lock;
    handle_ = hdf5::create_file(medium_);
    check(handle_.valid());
  }
  hid_t handle() const { return handle_; }

  // After HDF5 has written: its own result does not include failures of the disk.
  void check(bool good) const {
    if (medium_.error() != 0)
      throw user_error("{}: cannot be written: {}; free some space or choose another --output, then try again", path_,
                       std::strerror(medium_.error()));
    if (!good) throw user_error("{}: cannot be written; HDF5 gives no reason", path_);
  }

  void close() {
    const hdf5::Lock lock;
    check(H5Fflush(handle_, H5F_SCOPE_GLOBAL) >= 0);
    check(handle_.close());
  }

 private:
  std::string path_;
  hdf5::DiskMedium medium_;
  hdf5::Handle handle_;  // closed before the medium
};

// The first dimension counts rows of `row` entries; 0: no second dimension.
struct ColumnForm {
  std::int64_t row = 0, entry = 1;  // bytes of an entry: 1 or 2
  bool compressed = false;
};

// One growing array.
class Column {
 public:
  void create(OutputFile& output, const std::string& name, const ColumnForm& form) {
    output_ = &output;
    rank_ = form.row > 0 ? 2 : 1;
    entry_ = form.entry;
    row_ = std::max<std::int64_t>(form.row, 1) * entry_;
    chunk_ = std::max<std::int64_t>(1, chunk_bytes / row_) * row_;
    const hsize_t chunk[2] = {static_cast<hsize_t>(chunk_ / row_), static_cast<hsize_t>(row_ / entry_)};
    const hsize_t size[2] = {0, chunk[1]}, most[2] = {H5S_UNLIMITED, chunk[1]};
    const hdf5::Lock lock;
    const hdf5::Handle space = H5Screate_simple(rank_, size, most);
    const hdf5::Handle creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(creation, rank_, chunk);
    if (form.compressed) H5Pset_deflate(creation, 6);
    H5Pset_fletcher32(creation);  // one checksum per chunk, so that damage is an error, never wrong bytes
    dataset_ = H5Dcreate2(output.handle(), name.c_str(), entry_ == 2 ? H5T_STD_U16LE : H5T_STD_U8LE, space, H5P_DEFAULT,
                          creation, H5P_DEFAULT);
    output_->check(dataset_.valid());
  }

  void append(const std::uint8_t* bytes, std::int64_t count) {
    sha_.update(bytes, static_cast<std::size_t>(count));
    bytes_ += count;
    buffer_.insert(buffer_.end(), bytes, bytes + count);
    const auto held = static_cast<std::int64_t>(buffer_.size());
    if (held >= buffer_bytes) flush(held / chunk_ * chunk_);
  }

  void append_line(std::string text) {
    std::replace(text.begin(), text.end(), '\n', '?');  // a name's line feeds
    text += '\n';
    append(reinterpret_cast<const std::uint8_t*>(text.data()), std::ssize(text));
  }

  void finish() {
    LONGSTRIDE_CHECK(buffer_.size() % static_cast<std::size_t>(row_) == 0, "{} bytes are not whole rows of {}",
                     buffer_.size(), row_);
    const hdf5::Lock lock;
    flush(static_cast<std::int64_t>(buffer_.size()));
    sha256_ = sha_.hex();
    output_->check(hdf5::write_attribute(dataset_, "sha256", sha256_));
    output_->check(dataset_.close());
  }

  std::int64_t bytes() const { return bytes_; }
  const std::string& sha256() const { return sha256_; }                    // after finish()
  const std::vector<std::int64_t>& zero_chunks() const { return zeros_; }  // pairs of first and count

 private:
  // Whole chunks, except for the last.
  void flush(std::int64_t count) {
    if (count == 0) return;
    note_zeros(count);
    const hsize_t start[2] = {static_cast<hsize_t>(written_ / row_), 0};
    const hsize_t size[2] = {static_cast<hsize_t>(count / row_), static_cast<hsize_t>(row_ / entry_)};
    const hsize_t grown[2] = {start[0] + size[0], size[1]};
    const hdf5::Lock lock;
    output_->check(H5Dset_extent(dataset_, grown) >= 0);
    const hdf5::Handle file_space = H5Dget_space(dataset_);
    const hdf5::Handle memory = H5Screate_simple(rank_, size, nullptr);
    output_->check(H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, nullptr, size, nullptr) >= 0 &&
                   H5Dwrite(dataset_, entry_ == 2 ? H5T_NATIVE_UINT16 : H5T_NATIVE_UINT8, memory, file_space,
                            H5P_DEFAULT, buffer_.data()) >= 0);
    written_ += count;
    buffer_.erase(buffer_.begin(), buffer_.begin() + count);
  }

  void note_zeros(std::int64_t count) {
    for (std::int64_t at = 0; at < count; at += chunk_) {
      const auto begin = buffer_.begin() + at;
      if (std::any_of(begin, begin + std::min(chunk_, count - at), [](std::uint8_t byte) { return byte != 0; }))
        continue;
      const std::int64_t chunk = (written_ + at) / chunk_;
      if (!zeros_.empty() && zeros_[zeros_.size() - 2] + zeros_.back() == chunk)
        ++zeros_.back();
      else
        zeros_.insert(zeros_.end(), {chunk, 1});
    }
  }

  OutputFile* output_ = nullptr;
  int rank_ = 1;
  std::int64_t entry_ = 1, row_ = 1, chunk_ = 1, bytes_ = 0, written_ = 0;
  hdf5::Handle dataset_;
  std::vector<std::uint8_t> buffer_;
  std::vector<std::int64_t> zeros_;
  Sha256 sha_;
  std::string sha256_;
};

void write_numbers(const OutputFile& output, const std::string& name, const std::vector<std::int64_t>& numbers) {
  if (numbers.empty()) return;
  const auto count = static_cast<hsize_t>(numbers.size());
  const hdf5::Handle space = H5Screate_simple(1, &count, nullptr);
  hdf5::Handle array =
      H5Dcreate2(output.handle(), name.c_str(), H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  Sha256 sha;
  sha.update(numbers.data(), numbers.size() * sizeof(std::int64_t));
  output.check(array.valid() && H5Dwrite(array, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers.data()) >= 0 &&
               hdf5::write_attribute(array, "sha256", sha.hex()));
  output.check(array.close());
}

void write_about(const OutputFile& output, const DatasetInfo& info, const std::string& split_rule) {
  const auto number = [&](const char* name, std::int64_t value) {
    if (value > 0) output.check(hdf5::write_attribute(output.handle(), name, value));
  };
  const auto text = [&](const char* name, const std::string& value) {
    if (!value.empty()) output.check(hdf5::write_attribute(output.handle(), name, value));
  };
  text("kind", name_of(info.kind));
  number("format_version", 1);
  text("tool_version", tool_version);
  text("split", split_rule);
  number("rows", info.rows);
  number("columns", info.columns);
  number("channels", info.channels);
  number("rate", info.rate);
  text("encoding", info.encoding);
  text("documents", info.documents);
  text("groups", info.groups);
  if (info.kind == DataKind::tokens) number("vocabulary", info.vocabulary);
}

}  // namespace

struct DatasetWriter::State {
  State(const std::string& output_path, const DatasetInfo& about, bool replaces)
      : path(output_path),
        info(about),
        replace(replaces),
        file(output_path),
        output(std::in_place, output_path, file.temporary_path()) {}

  // Reads the file before it is published.
  void verify() const {
    try {
      const auto dataset = std::make_shared<const Dataset>(std::make_shared<const FileBlob>(file.temporary_path()), 0);
      dataset->verify();
      for (std::size_t i = 0; i < 3; ++i)
        if (dataset->stored_sha256(split_names[i]) != splits[i].sha256() ||
            dataset->size(split_names[i]).bytes * info.token_bytes() != splits[i].bytes())
          throw user_error("'{}' is not what was written", split_names[i]);
    } catch (const UserError& error) {
      throw user_error("{}: does not read back as it was written, so it is not kept: {}", path, error.what());
    }
  }

  std::string path;
  DatasetInfo info;
  bool replace;  // a file of that name
  AtomicFile file;
  std::optional<OutputFile> output;
  std::array<Column, 3> splits, labels, group_labels;
  std::array<std::vector<std::int64_t>, 3> boundaries, groups;
  std::array<std::int64_t, 3> text_bytes{};
  Column sources, label_names, tokenizer;
};

FoldersOf::FoldersOf(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code failed;
  for (std::filesystem::path next = folder; !next.empty() && !std::filesystem::exists(next, failed);
       next = next.parent_path())
    made_.insert(made_.begin(), next.string());
  if (!folder.empty()) std::filesystem::create_directories(folder, failed);
  if (!failed) return;
  remove_empty();
  throw user_error("{}: cannot make the folder {}: {}", path, folder.string(), failed.message());
}

FoldersOf::~FoldersOf() { remove_empty(); }

void FoldersOf::remove_empty() const {
  std::error_code in_use;
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) std::filesystem::remove(*folder, in_use);
}

void check_output(const std::string& path, bool replace, const std::vector<std::string>& inputs, const char* option) {
  if (path.empty()) throw user_error("--output is empty; name the file to write, such as data/set.h5");
  if (path == "-") throw user_error("-: names no file to write; give {} a name", option);
  for (const std::string& input : inputs) {
    std::error_code absent;
    if (std::filesystem::equivalent(path, input, absent))
      throw user_error("{}: is also the input, which would be lost; choose another {}", path, option);
  }
  std::error_code failure;
  const bool exists = std::filesystem::exists(path, failure);
  if (failure) throw user_error("{}: cannot be written: {}; choose another {}", path, failure.message(), option);
  if (std::filesystem::path(path).filename().empty() || std::filesystem::is_directory(path, failure))
    throw user_error("{}: is a folder; give {} the name of a file in it", path, option);
  if (exists && !std::filesystem::is_regular_file(path, failure))
    throw user_error("{}: is a pipe, a socket or a device, but this needs a regular file; choose another {}", path,
                     option);
  if (!replace && exists)
    throw user_error("{}: already exists; choose another {}, or replace it with --force", path, option);
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  while (!folder.empty() && !std::filesystem::exists(folder)) folder = folder.parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    throw user_error("{}: {} is not a folder; choose another {}", path, folder.string(), option);
}

DatasetWriter::DatasetWriter(const std::string& path, const DatasetInfo& info, bool replace) {
  check_output(path, replace, {});
  state_ = std::make_unique<State>(path, info, replace);
  State& s = *state_;
  for (std::size_t i = 0; i < 3; ++i)
    s.splits[i].create(*s.output, split_names[i], {.row = info.image_bytes(), .entry = info.token_bytes()});
  s.sources.create(*s.output, "sources", {.compressed = true});
  if (!info.tokenizer.empty()) {
    s.tokenizer.create(*s.output, "tokenizer", {.compressed = true});
    s.tokenizer.append(reinterpret_cast<const std::uint8_t*>(info.tokenizer.data()), std::ssize(info.tokenizer));
  }
  if (info.label_names.empty()) return;
  s.label_names.create(*s.output, "label_names", {.compressed = true});
  for (const std::string& name : info.label_names) s.label_names.append_line(name);
}

DatasetWriter::~DatasetWriter() = default;

void DatasetWriter::append(SplitId split, const std::uint8_t* bytes, std::int64_t count) {
  state_->splits[static_cast<std::size_t>(split)].append(bytes, count);
}

void DatasetWriter::append_tokens(SplitId split, std::span<const std::uint16_t> tokens, std::int64_t text_bytes) {
  const auto i = static_cast<std::size_t>(split);
  state_->text_bytes[i] += text_bytes;
  if (state_->info.token_bytes() == 2)
    return state_->splits[i].append(reinterpret_cast<const std::uint8_t*>(tokens.data()), 2 * std::ssize(tokens));
  const std::vector<std::uint8_t> narrow(tokens.begin(), tokens.end());
  state_->splits[i].append(narrow.data(), std::ssize(narrow));
}

void DatasetWriter::append_labels(SplitId split, std::span<const std::uint16_t> labels) {
  const auto i = static_cast<std::size_t>(split);
  Column& column = state_->labels[i];
  const bool wide = state_->info.wide_labels;
  if (column.bytes() == 0)
    column.create(*state_->output, std::string(split_names[i]) + "_labels",
                  {labels.size() > 1 ? std::ssize(labels) : 0, wide ? 2 : 1, true});
  std::vector<std::uint8_t> bytes(labels.begin(), labels.end());
  if (wide)
    bytes.assign(reinterpret_cast<const std::uint8_t*>(labels.data()),
                 reinterpret_cast<const std::uint8_t*>(labels.data() + labels.size()));
  column.append(bytes.data(), std::ssize(bytes));
}

void DatasetWriter::end_file(SplitId split) {
  auto& boundaries = state_->boundaries[static_cast<std::size_t>(split)];
  if (boundaries.empty()) boundaries.push_back(0);
  boundaries.push_back(bytes(split));
}

bool DatasetWriter::end_document(SplitId split) {
  const auto& boundaries = state_->boundaries[static_cast<std::size_t>(split)];
  const bool holds_bytes = bytes(split) > (boundaries.empty() ? 0 : boundaries.back());
  if (holds_bytes) end_file(split);
  return holds_bytes;
}

void DatasetWriter::end_group(SplitId split, std::int64_t at) {
  auto& groups = state_->groups[static_cast<std::size_t>(split)];
  if (groups.empty() && at > 0) groups.push_back(0);
  if (!groups.empty() && groups.back() < at) groups.push_back(at);
}

void DatasetWriter::append_group_labels(SplitId split, std::span<const std::uint16_t> labels) {
  const auto i = static_cast<std::size_t>(split);
  Column& column = state_->group_labels[i];
  if (column.bytes() == 0)
    column.create(*state_->output, std::string(split_names[i]) + "_group_labels", {.entry = 2, .compressed = true});
  column.append(reinterpret_cast<const std::uint8_t*>(labels.data()), 2 * std::ssize(labels));
}

void DatasetWriter::add_source(const SourceFile& source) {
  state_->sources.append_line(fmt::format("{} {} {}", source.sha256, source.bytes, source.name));
}

std::int64_t DatasetWriter::bytes(SplitId split) const {
  return state_->splits[static_cast<std::size_t>(split)].bytes() / state_->info.token_bytes();
}

std::int64_t DatasetWriter::files(SplitId split) const {
  const auto& boundaries = state_->boundaries[static_cast<std::size_t>(split)];
  return boundaries.empty() ? 0 : static_cast<std::int64_t>(boundaries.size()) - 1;
}

std::int64_t DatasetWriter::groups(SplitId split) const {
  const auto& groups = state_->groups[static_cast<std::size_t>(split)];
  return groups.empty() ? 0 : static_cast<std::int64_t>(groups.size()) - 1;
}

void DatasetWriter::commit(const std::string& split_rule) {
  State& s = *state_;
  {
    const hdf5::Lock lock;
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string name = split_names[i];
      s.splits[i].finish();
      if (s.labels[i].bytes() > 0) s.labels[i].finish();
      if (s.group_labels[i].bytes() > 0) s.group_labels[i].finish();
      write_numbers(*s.output, name + "_boundaries", s.boundaries[i]);
      write_numbers(*s.output, name + "_groups", s.groups[i]);
      write_numbers(*s.output, name + "_zeros", s.splits[i].zero_chunks());
    }
    s.sources.finish();
    for (Column* whole : {&s.label_names, &s.tokenizer})
      if (whole->bytes() > 0) whole->finish();
    for (std::size_t i = 0; i < 3; ++i)
      if (s.text_bytes[i] > 0)
        s.output->check(hdf5::write_attribute(s.output->handle(), (std::string(split_names[i]) + "_text_bytes").c_str(),
                                              s.text_bytes[i]));
    write_about(*s.output, s.info, split_rule);
    s.output->close();
  }
  s.verify();
  s.file.commit(s.replace);
}

}  // namespace longstride
