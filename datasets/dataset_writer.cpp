#include "datasets/dataset_writer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "datasets/hdf5_handle.h"
#include "framework/core/errors.h"
#include "framework/core/files.h"
#include "framework/core/sha256.h"

namespace longstride {
namespace {

constexpr std::int64_t chunk_bytes = std::int64_t{256} << 10;  // what one random read fetches from a large file
constexpr std::int64_t buffer_bytes = std::int64_t{4} << 20;
constexpr const char* tool_version = "longstride " LONGSTRIDE_VERSION;

// One growing dataset. Its first dimension counts rows of `row` bytes (row 0: entries of one byte, no second
// dimension).
class Column {
 public:
  void create(hid_t file, const std::string& path, const std::string& name, std::int64_t row, bool compressed) {
    path_ = path;
    row_ = row;
    const std::int64_t width = std::max<std::int64_t>(row, 1);
    const hsize_t chunk[2] = {static_cast<hsize_t>(std::max<std::int64_t>(1, chunk_bytes / width)),
                              static_cast<hsize_t>(width)};
    const hsize_t size[2] = {0, chunk[1]}, most[2] = {H5S_UNLIMITED, chunk[1]};
    const int rank = row > 0 ? 2 : 1;
    const hdf5::Handle space = H5Screate_simple(rank, size, most);
    const hdf5::Handle creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(creation, rank, chunk);
    if (compressed) H5Pset_deflate(creation, 6);
    H5Pset_fletcher32(creation);  // a checksum a chunk: damage is an error, never wrong bytes
    dataset_ = H5Dcreate2(file, name.c_str(), H5T_STD_U8LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    if (!dataset_.valid()) failed();
  }

  void append(const std::uint8_t* bytes, std::int64_t count) {
    sha_.update(bytes, static_cast<std::size_t>(count));
    bytes_ += count;
    buffer_.insert(buffer_.end(), bytes, bytes + count);
    const std::int64_t unit =
        std::max<std::int64_t>(row_, 1) * std::max<std::int64_t>(1, chunk_bytes / std::max<std::int64_t>(row_, 1));
    const auto held = static_cast<std::int64_t>(buffer_.size());
    if (held >= buffer_bytes) flush(held / unit * unit);
  }

  void flush(std::int64_t count) {
    if (count == 0) return;
    const hdf5::Lock lock;
    const std::int64_t width = std::max<std::int64_t>(row_, 1);
    const hsize_t start[2] = {static_cast<hsize_t>(written_ / width), 0};
    const hsize_t size[2] = {static_cast<hsize_t>(count / width), static_cast<hsize_t>(width)};
    const hsize_t grown[2] = {start[0] + size[0], size[1]};
    if (H5Dset_extent(dataset_, grown) < 0) failed();
    const hdf5::Handle file_space = H5Dget_space(dataset_);
    const hdf5::Handle memory = H5Screate_simple(row_ > 0 ? 2 : 1, size, nullptr);
    if (H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, nullptr, size, nullptr) < 0 ||
        H5Dwrite(dataset_, H5T_NATIVE_UINT8, memory, file_space, H5P_DEFAULT, buffer_.data()) < 0)
      failed();
    written_ += count;
    buffer_.erase(buffer_.begin(), buffer_.begin() + count);
  }

  void finish() {
    const hdf5::Lock lock;
    LONGSTRIDE_CHECK(buffer_.size() % static_cast<std::size_t>(std::max<std::int64_t>(row_, 1)) == 0,
                     "{} bytes are no whole rows of {}", buffer_.size(), row_);
    flush(static_cast<std::int64_t>(buffer_.size()));
    if (!hdf5::write_attribute(dataset_, "sha256", sha_.hex())) failed();
    dataset_ = hdf5::Handle();
  }

  std::int64_t bytes() const { return bytes_; }

 private:
  [[noreturn]] void failed() const {
    throw user_error("{}: cannot write: {}; is the disk full?", path_,
                     errno != 0 ? std::strerror(errno) : "HDF5 failed");
  }

  std::string path_;
  std::int64_t row_ = 0, bytes_ = 0, written_ = 0;
  hdf5::Handle dataset_;
  std::vector<std::uint8_t> buffer_;
  Sha256 sha_;
};

}  // namespace

struct DatasetWriter::State {
  State(const std::string& output, const DatasetInfo& about) : path(output), info(about), file(output) {}

  std::string path;
  DatasetInfo info;
  AtomicFile file;
  hdf5::Handle handle;
  std::array<Column, 3> splits, labels;
  std::array<std::vector<std::int64_t>, 3> boundaries;
  Column sources;
};

void check_output(const std::string& path, bool replace, const std::vector<std::string>& inputs) {
  if (path.empty()) throw user_error("--output is empty; name the file to write, such as data/set.h5");
  for (const std::string& input : inputs) {
    std::error_code absent;
    if (std::filesystem::equivalent(path, input, absent))
      throw user_error("{}: is the input, too, which would be lost; choose another --output", path);
  }
  if (!replace && std::filesystem::exists(path))
    throw user_error("{}: exists already; choose another --output, or replace it with --force", path);
}

DatasetWriter::DatasetWriter(const std::string& path, const DatasetInfo& info, bool replace) {
  check_output(path, replace, {});
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    throw user_error("{}: the folder {} does not exist; make it first", path, folder.string());
  state_ = std::make_unique<State>(path, info);
  State& s = *state_;
  const hdf5::Lock lock;
  const hdf5::Handle access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);  // whose headers and indexes carry checksums
  H5Pset_file_locking(access, false, true);
  H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
  errno = 0;
  s.handle = H5Fcreate(s.file.temporary_path().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
  if (!s.handle.valid()) throw user_error("{}: cannot be created by HDF5: {}", path, std::strerror(errno));
  for (std::size_t i = 0; i < 3; ++i) s.splits[i].create(s.handle, path, split_names[i], info.image_bytes(), false);
  s.sources.create(s.handle, path, "sources", 0, true);
}

DatasetWriter::~DatasetWriter() = default;

void DatasetWriter::append(SplitId split, const std::uint8_t* bytes, std::int64_t count) {
  state_->splits[static_cast<std::size_t>(split)].append(bytes, count);
}

void DatasetWriter::append_label(SplitId split, std::uint8_t label) {
  const auto i = static_cast<std::size_t>(split);
  Column& labels = state_->labels[i];
  const hdf5::Lock lock;
  if (labels.bytes() == 0)
    labels.create(state_->handle, state_->path, std::string(split_names[i]) + "_labels", 0, true);
  labels.append(&label, 1);
}

void DatasetWriter::end_file(SplitId split) {
  auto& boundaries = state_->boundaries[static_cast<std::size_t>(split)];
  if (boundaries.empty()) boundaries.push_back(0);
  boundaries.push_back(bytes(split));
}

void DatasetWriter::add_source(const SourceFile& source) {
  std::string name = source.name;
  std::replace(name.begin(), name.end(), '\n', '?');  // a line a file
  const std::string line = fmt::format("{} {} {}\n", source.sha256, source.bytes, name);
  state_->sources.append(reinterpret_cast<const std::uint8_t*>(line.data()), static_cast<std::int64_t>(line.size()));
}

std::int64_t DatasetWriter::bytes(SplitId split) const {
  return state_->splits[static_cast<std::size_t>(split)].bytes();
}

std::int64_t DatasetWriter::entries(SplitId split) const {
  return bytes(split) / std::max<std::int64_t>(state_->info.image_bytes(), 1);
}

std::int64_t DatasetWriter::files(SplitId split) const {
  const auto& boundaries = state_->boundaries[static_cast<std::size_t>(split)];
  return boundaries.empty() ? 0 : static_cast<std::int64_t>(boundaries.size()) - 1;
}

void DatasetWriter::commit(const std::string& split_rule) {
  State& s = *state_;
  {
    const hdf5::Lock lock;
    errno = 0;
    bool good = true;
    for (std::size_t i = 0; i < 3; ++i) {
      s.splits[i].finish();
      if (s.labels[i].bytes() > 0) s.labels[i].finish();
      const auto& boundaries = s.boundaries[i];
      if (boundaries.empty()) continue;
      const auto count = static_cast<hsize_t>(boundaries.size());
      const hdf5::Handle space = H5Screate_simple(1, &count, nullptr);
      const hdf5::Handle column = H5Dcreate2(s.handle, (std::string(split_names[i]) + "_boundaries").c_str(),
                                             H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
      good = good && column.valid() &&
             H5Dwrite(column, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, boundaries.data()) >= 0;
    }
    s.sources.finish();
    const auto number = [&](const char* name, std::int64_t value) {
      if (value > 0) good = good && hdf5::write_attribute(s.handle, name, value);
    };
    const auto text = [&](const char* name, const std::string& value) {
      if (!value.empty()) good = good && hdf5::write_attribute(s.handle, name, value);
    };
    text("kind", name_of(s.info.kind));
    number("format_version", 1);
    text("tool_version", tool_version);
    text("split", split_rule);
    number("rows", s.info.rows);
    number("columns", s.info.columns);
    number("channels", s.info.channels);
    number("rate", s.info.rate);
    text("encoding", s.info.encoding);
    good = good && H5Fflush(s.handle, H5F_SCOPE_GLOBAL) >= 0;
    s.handle = hdf5::Handle();
    if (!good)
      throw user_error("{}: cannot be finished: {}", s.path, errno != 0 ? std::strerror(errno) : "HDF5 failed");
  }
  s.file.commit();
}

}  // namespace longstride
