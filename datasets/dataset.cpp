#include "datasets/dataset.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <sstream>

#include "datasets/hdf5_handle.h"
#include "datasets/split_view.h"
#include "datasets/text.h"
#include "framework/core/errors.h"
#include "framework/core/files.h"

namespace longstride {
namespace {

constexpr std::int64_t largest_resident = std::int64_t{512} << 20;
constexpr std::int64_t piece_bytes = std::int64_t{1} << 20;
constexpr std::int64_t longest_side = 1 << 20;

struct KindName {
  DataKind kind;
  const char* name;
};
constexpr std::array<KindName, 4> kinds = {{{DataKind::bytes, "bytes"},
                                            {DataKind::cifar10, "cifar10"},
                                            {DataKind::images, "images"},
                                            {DataKind::audio, "audio"}}};

UserError not_ours(const std::string& path, const std::string& why) {
  return user_error("{}: is HDF5, but {}; make the file with `longstride prepare`", path, why);
}

hdf5::Handle open_hdf5(const std::string& path) {
  const std::uint64_t size = InputFile(path).size();  // a clear message when it is missing or a directory
  const hdf5::Lock lock;
  if (H5Fis_hdf5(path.c_str()) <= 0) throw user_error("{}: is no HDF5 file; make one with `longstride prepare`", path);
  const hdf5::Handle access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_file_locking(access, false, true);  // prepared files never change, and some cluster file systems cannot lock
  hdf5::Handle file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access);
  if (!file.valid())
    throw user_error("{}: cannot be opened as HDF5; its {} bytes are damaged or cut short, so copy or prepare it anew",
                     path, thousands(static_cast<std::int64_t>(size)));
  return file;
}

DatasetInfo read_info(hid_t file, const std::string& path) {
  DatasetInfo info;
  const auto kind = hdf5::text_attribute(file, "kind");
  if (!kind) throw not_ours(path, "has no attribute 'kind'");
  const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const KindName& k) { return *kind == k.name; });
  if (found == kinds.end())
    throw not_ours(path, fmt::format("its kind is '{}', not bytes, cifar10, images or audio", *kind));
  info.kind = found->kind;
  const std::int64_t version = hdf5::integer_attribute(file, "format_version").value_or(1);
  if (version != 1)
    throw user_error("{}: has format_version {}, but this program reads version 1; prepare it anew", path, version);

  const auto positive = [&](const char* name, std::int64_t most) {
    const auto value = hdf5::integer_attribute(file, name);
    if (!value) throw not_ours(path, fmt::format("has no attribute '{}', which {} needs", name, *kind));
    if (*value < 1 || *value > most)
      throw not_ours(path, fmt::format("its attribute '{}' is {}, not 1 to {}", name, *value, most));
    return *value;
  };
  if (info.kind == DataKind::cifar10 || info.kind == DataKind::images) {
    info.rows = positive("rows", longest_side);
    info.columns = positive("columns", longest_side);
    info.channels = positive("channels", 4);
  }
  if (info.kind == DataKind::audio) info.rate = positive("rate", 1 << 24);
  info.encoding = hdf5::text_attribute(file, "encoding").value_or("");
  info.split = hdf5::text_attribute(file, "split").value_or("");
  info.tool_version = hdf5::text_attribute(file, "tool_version").value_or("");
  return info;
}

// A dataset of integers of `rank` dimensions, whose bytes are really in the file: a header that claims more than is
// stored would have us allocate and train on zeros.
StoredArray open_array(hid_t file, const std::string& path, const std::string& name, int rank, std::size_t width) {
  StoredArray array;
  array.where = fmt::format("{}: '{}'", path, name);
  array.dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
  if (!array.dataset.valid()) throw not_ours(path, fmt::format("has no readable dataset '{}'", name));
  const hdf5::Handle type = H5Dget_type(array.dataset), space = H5Dget_space(array.dataset);
  const H5T_sign_t sign = width == 1 ? H5T_SGN_NONE : H5T_SGN_2;
  if (!type.valid() || H5Tget_class(type) != H5T_INTEGER || H5Tget_size(type) != width || H5Tget_sign(type) != sign)
    throw not_ours(path, fmt::format("'{}' does not hold {}", name, width == 1 ? "uint8" : "int64"));
  hsize_t sizes[H5S_MAX_RANK] = {};
  if (!space.valid() || H5Sget_simple_extent_ndims(space) != rank ||
      H5Sget_simple_extent_dims(space, sizes, nullptr) != rank)
    throw not_ours(path, fmt::format("'{}' does not have {} dimension(s)", name, rank));
  constexpr hsize_t most = hsize_t{1} << 46;
  array.rows = static_cast<std::int64_t>(std::min(sizes[0], most));
  array.length = rank == 2 ? static_cast<std::int64_t>(std::min(sizes[1], hsize_t{1} << 32)) : 1;
  const hsize_t stored = H5Dget_storage_size(array.dataset);
  const hdf5::Handle creation = H5Dget_create_plist(array.dataset);
  bool compressed = false;
  for (int f = 0; creation.valid() && f < H5Pget_nfilters(creation); ++f) {
    unsigned flags = 0;
    std::size_t values = 0;
    compressed = compressed || H5Pget_filter2(creation, static_cast<unsigned>(f), &flags, &values, nullptr, 0, nullptr,
                                              nullptr) != H5Z_FILTER_FLETCHER32;
  }
  constexpr double strongest_deflate = 1100;
  const double claimed =
      static_cast<double>(array.rows) * static_cast<double>(array.length) * static_cast<double>(width);
  const double held = static_cast<double>(stored) * (compressed ? strongest_deflate : 1);
  if (sizes[0] >= most || claimed > held)
    throw user_error("{} claims {} entries but only {} bytes of it are stored; the file is damaged, prepare it anew",
                     array.where, array.rows, thousands(static_cast<std::int64_t>(stored)));
  return array;
}

std::vector<std::int64_t> read_boundaries(hid_t file, const std::string& path, const std::string& name,
                                          std::int64_t length) {
  const StoredArray array = open_array(file, path, name, 1, sizeof(std::int64_t));
  std::vector<std::int64_t> out(static_cast<std::size_t>(array.rows));
  if (out.empty() || H5Dread(array.dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, out.data()) < 0)
    throw user_error("{} cannot be read; the file is damaged, prepare it anew", array.where);
  if (out.front() != 0 || out.back() != length || !std::is_sorted(out.begin(), out.end()))
    throw user_error("{} does not rise from 0 to {}, the length of its split; prepare the file anew", array.where,
                     length);
  return out;
}

class Hdf5Dataset final : public Dataset {
 public:
  explicit Hdf5Dataset(const std::string& path) : path_(path), file_(open_hdf5(path)) {
    const hdf5::Lock lock;
    info_ = read_info(file_, path);
    for (const char* name : split_names) {
      Split& split = splits_[name];
      StoredArray array = open_array(file_, path, name, info_.rows > 0 ? 2 : 1, 1);
      if (info_.rows > 0 && array.rows > 0 && array.length != info_.image_bytes())
        throw user_error("{} has rows of {} bytes, but {} x {} x {} make {}; prepare the file anew", array.where,
                         array.length, info_.rows, info_.columns, info_.channels, info_.image_bytes());
      const std::string boundaries = std::string(name) + "_boundaries";
      if (info_.rows == 0 && H5Lexists(file_, boundaries.c_str(), H5P_DEFAULT) > 0)
        split.boundaries = read_boundaries(file_, path, boundaries, array.rows);
      split.array = std::make_shared<const StoredArray>(std::move(array));
    }
  }
  const DatasetInfo& info() const override { return info_; }
  const std::string& path() const override { return path_; }

  std::shared_ptr<const SequenceSet> split(const std::string& name, bool cross_files) const override {
    const Split& split = find(name);
    std::shared_ptr<const ByteStore> store = split.array;
    if (split.array->bytes() <= largest_resident) store = resident(name);
    if (info_.rows > 0) return images_view(store, split.array->rows, split.array->length);
    if (split.boundaries.empty() || cross_files) return stream_view(store, {0, split.array->rows});
    return stream_view(store, split.boundaries);
  }

  SplitSize size(const std::string& name) const override {
    const Split& split = find(name);
    const hdf5::Lock lock;
    const bool labelled = H5Lexists(file_, (name + "_labels").c_str(), H5P_DEFAULT) > 0;
    const std::int64_t files = split.boundaries.empty() ? 1 : static_cast<std::int64_t>(split.boundaries.size()) - 1;
    const std::int64_t bytes = split.array->bytes();
    return {bytes == 0 ? 0 : info_.rows > 0 ? split.array->rows : files, bytes, labelled};
  }

  std::string stored_sha256(const std::string& name) const override {
    const hdf5::Lock lock;
    return hdf5::text_attribute(find(name).array->dataset, "sha256").value_or("");
  }

  void scan(const std::string& name,
            const std::function<void(const std::uint8_t*, std::int64_t)>& piece) const override {
    const StoredArray& array = *find(name).array;
    std::vector<std::uint8_t> buffer;
    for (std::int64_t at = 0; at < array.bytes(); at += static_cast<std::int64_t>(buffer.size())) {
      buffer.resize(static_cast<std::size_t>(std::min(piece_bytes, array.bytes() - at)));
      array.read(at, static_cast<std::int64_t>(buffer.size()), buffer.data());
      piece(buffer.data(), static_cast<std::int64_t>(buffer.size()));
    }
  }

  std::vector<std::uint8_t> labels(const std::string& name) const override {
    return optional_bytes(name + "_labels", find(name).array->rows);
  }

  std::vector<SourceFile> sources() const override {
    constexpr std::int64_t most = std::int64_t{1} << 30;
    const std::vector<std::uint8_t> text = optional_bytes("sources", most);
    std::istringstream lines(std::string(text.begin(), text.end()));
    std::vector<SourceFile> out;
    for (SourceFile source; lines >> source.sha256 >> source.bytes && std::getline(lines.ignore(), source.name);)
      out.push_back(source);
    return out;
  }

 private:
  struct Split {
    std::shared_ptr<const StoredArray> array;
    std::vector<std::int64_t> boundaries;  // empty: one sequence
  };

  const Split& find(const std::string& name) const {
    const auto found = splits_.find(name);
    if (found == splits_.end()) throw user_error("{}: has no split '{}'; choose train, valid or test", path_, name);
    return found->second;
  }

  std::shared_ptr<const ByteStore> resident(const std::string& name) const {
    const std::lock_guard lock(loading_);
    auto& kept = resident_[name];
    if (kept == nullptr) {
      std::vector<std::uint8_t> bytes;
      bytes.reserve(static_cast<std::size_t>(find(name).array->bytes()));
      scan(name,
           [&](const std::uint8_t* piece, std::int64_t count) { bytes.insert(bytes.end(), piece, piece + count); });
      kept = std::make_shared<const ResidentBytes>(std::move(bytes));
    }
    return kept;
  }

  std::vector<std::uint8_t> optional_bytes(const std::string& name, std::int64_t most) const {
    const hdf5::Lock lock;
    if (H5Lexists(file_, name.c_str(), H5P_DEFAULT) <= 0) return {};
    const StoredArray array = open_array(file_, path_, name, 1, 1);
    if (array.rows > most) throw user_error("{} has {} bytes, more than {}", array.where, array.rows, most);
    std::vector<std::uint8_t> out(static_cast<std::size_t>(array.rows));
    array.read(0, array.rows, out.data());
    return out;
  }

  std::string path_;
  hdf5::Handle file_;
  DatasetInfo info_;
  std::map<std::string, Split> splits_;
  mutable std::mutex loading_;
  mutable std::map<std::string, std::shared_ptr<const ByteStore>> resident_;
};

}  // namespace

const char* name_of(DataKind kind) { return kinds[static_cast<std::size_t>(kind)].name; }

std::shared_ptr<const Dataset> Dataset::open(const std::string& path) {
  if (std::error_code ignored; !std::filesystem::exists(path, ignored))
    throw user_error("{}: is not there; make it with `longstride prepare`, or correct the path", path);
  return std::make_shared<Hdf5Dataset>(path);
}

void check_fits(const Dataset& dataset, const DataConfig& config) {
  const DatasetInfo& info = dataset.info();
  if (info.kind != config.kind)
    throw user_error("{}: holds {}, but the recipe's data.kind is {}; change data.kind or data.path", dataset.path(),
                     name_of(info.kind), name_of(config.kind));
  if (info.rows > 0 && config.context != info.image_bytes())
    throw user_error("{}: its images have {} x {} x {} = {} bytes, but data.context is {}; set data.context to that",
                     dataset.path(), info.rows, info.columns, info.channels, info.image_bytes(), config.context);
}

std::unique_ptr<BatchSource> open_training_data(const DataConfig& config, std::uint64_t seed) {
  const auto dataset = Dataset::open(config.path);
  check_fits(*dataset, config);
  return make_batch_source(dataset->split("train", config.cross_files), config.context, seed,
                           fmt::format("{}: 'train'", config.path));
}

}  // namespace longstride
