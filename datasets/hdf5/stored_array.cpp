#include "datasets/hdf5/stored_array.h"

#include <algorithm>
#include <cstring>

#include "datasets/hdf5/chunk_filters.h"
#include "framework/core/errors.h"
#include "framework/core/files/sha256.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

constexpr std::int64_t piece_bytes = std::int64_t{1} << 20;
constexpr std::int64_t unchunked_bytes = std::int64_t{256} << 10;  // read at once from an array without chunks
constexpr std::int64_t largest_band = std::int64_t{256} << 20;     // size of all chunks of the same rows
constexpr std::int64_t longest_row = std::int64_t{1} << 28;
constexpr std::int64_t most_rows = std::int64_t{1} << 46;
constexpr double strongest_deflate = 1100;  // times smaller

bool all_zero(const std::uint8_t* bytes, std::size_t count) {
  return count == 0 || (bytes[0] == 0 && std::memcmp(bytes, bytes + 1, count - 1) == 0);
}

bool has_signature(const Blob& blob) {
  constexpr char signature[] = "\x89HDF\r\n\x1a\n";
  char start[8];
  for (std::uint64_t at = 0; at + sizeof start <= blob.size(); at = at == 0 ? 512 : 2 * at) {
    blob.read(at, start, sizeof start);
    if (std::memcmp(start, signature, sizeof start) == 0) return true;
  }
  return false;
}

}  // namespace

UserError not_ours(const std::string& path, const std::string& why) {
  return user_error("{}: is HDF5, but {}; make the file with `longstride prepare`", path, why);
}

Hdf5Input::Hdf5Input(std::shared_ptr<const Blob> blob) : medium_(std::move(blob)) {
  if (!has_signature(this->blob()))
    throw user_error("{}: is not an HDF5 file; make one with `longstride prepare`", name());
  const hdf5::Lock lock;
  handle_ = hdf5::open_file(medium_);
  if (!handle_.valid())
    throw user_error("{}: cannot be opened as HDF5; its {} bytes are damaged or cut short, so copy or prepare it again",
                     name(), thousands(static_cast<std::int64_t>(this->blob().size())));
}

bool Hdf5Input::read_chunk(hid_t dataset, const hsize_t* at, std::uint32_t& skipped_filters, std::uint8_t* out,
                           std::size_t size) const {
  medium_.limit_arrays(size);
  const bool good = H5Dread_chunk(dataset, H5P_DEFAULT, at, &skipped_filters, out) >= 0;
  medium_.limit_arrays(~std::uint64_t{0});
  return good;
}

StoredArray::StoredArray(std::shared_ptr<const Hdf5Input> file, const std::string& name, Type type)
    : file_(std::move(file)), name_(name), where_(fmt::format("{}: '{}'", file_->name(), name)) {
  const hdf5::Lock lock;
  dataset_ = H5Dopen2(file_->handle(), name.c_str(), H5P_DEFAULT);
  if (!dataset_.valid()) throw not_ours(file_->name(), fmt::format("has no readable dataset '{}'", name));
  read_type(type);
  read_layout(type);
  check_size();
  sha256_ = hdf5::text_attribute(dataset_, "sha256").value_or("");
}

StoredArray::Type StoredArray::type_in(const Hdf5Input& file, const std::string& name) {
  const hdf5::Lock lock;
  const hdf5::Handle data = H5Dopen2(file.handle(), name.c_str(), H5P_DEFAULT);
  if (!data.valid()) return {0, 0};
  const hdf5::Handle type = H5Dget_type(data), space = H5Dget_space(data);
  if (!type.valid() || !space.valid()) return {0, 0};
  return {H5Sget_simple_extent_ndims(space), H5Tget_size(type)};
}

void StoredArray::read_type(Type wanted) {
  const hdf5::Handle type = H5Dget_type(dataset_), space = H5Dget_space(dataset_);
  const H5T_sign_t sign = wanted.entry < 8 ? H5T_SGN_NONE : H5T_SGN_2;
  if (!type.valid() || H5Tget_class(type) != H5T_INTEGER || H5Tget_size(type) != wanted.entry ||
      H5Tget_sign(type) != sign || H5Tget_precision(type) != 8 * wanted.entry ||
      (wanted.entry > 1 && H5Tget_order(type) != H5T_ORDER_LE))
    throw not_ours(file_->name(), fmt::format("'{}' does not hold {}", name_,
                                              wanted.entry == 1   ? "uint8"
                                              : wanted.entry == 2 ? "uint16 in little-endian order"
                                              : wanted.entry == 4 ? "uint32 in little-endian order"
                                                                  : "int64 in little-endian order"));
  hsize_t sizes[H5S_MAX_RANK] = {};
  if (!space.valid() || H5Sget_simple_extent_type(space) != H5S_SIMPLE ||
      H5Sget_simple_extent_ndims(space) != wanted.rank ||
      H5Sget_simple_extent_dims(space, sizes, nullptr) != wanted.rank)
    throw not_ours(file_->name(), fmt::format("'{}' does not have {}", name_, counted(wanted.rank, "dimension")));
  const hsize_t row = wanted.rank == 2 ? sizes[1] : 1;
  if (sizes[0] >= most_rows || row > longest_row)
    throw not_ours(file_->name(), fmt::format("'{}' has {} rows of {} entries, too many", name_, sizes[0], row));
  entry_ = static_cast<std::int64_t>(wanted.entry);
  rows_ = static_cast<std::int64_t>(sizes[0]);
  row_bytes_ = static_cast<std::int64_t>(row) * entry_;
}

// Chunks may have any shape, and be uncompressed or compressed as by h5py. Arrays stored in other files, and those that
// need HDF5 to run a filter, are refused.
void StoredArray::read_layout(Type type) {
  const hdf5::Handle creation = H5Dget_create_plist(dataset_);
  const H5D_layout_t layout = creation.valid() ? H5Pget_layout(creation) : H5D_LAYOUT_ERROR;
  const auto refused = [&](const std::string& why) {
    return not_ours(file_->name(), fmt::format("'{}' {}", name_, why));
  };
  if (layout != H5D_CHUNKED && layout != H5D_CONTIGUOUS && layout != H5D_COMPACT)
    throw refused("does not have its bytes in this file");
  if (H5Pget_external_count(creation) != 0) throw refused("has its bytes in other files");
  chunk_row_bytes_ = row_bytes_;
  chunk_rows_ = std::max<std::int64_t>(1, unchunked_bytes / std::max<std::int64_t>(row_bytes_, 1));
  chunked_ = layout == H5D_CHUNKED;
  if (!chunked_) return;
  hsize_t sizes[2] = {1, 1};
  unsigned options = 0;
  if (H5Pget_chunk(creation, type.rank, sizes) != type.rank || sizes[0] == 0 || sizes[1] == 0 ||
      H5Pget_chunk_opts(creation, &options) < 0 || options != 0)
    throw refused("is divided into chunks of an unsupported kind");
  const hsize_t across = row_bytes_ == 0 ? 0 : (static_cast<hsize_t>(row_bytes_ / entry_) - 1) / sizes[1] + 1;
  if (sizes[0] > largest_band || sizes[1] > longest_row ||
      static_cast<double>(sizes[0]) * static_cast<double>(sizes[1] * across * type.entry) > largest_band)
    throw refused(fmt::format("has chunks of {} x {} entries, too large to read", sizes[0], sizes[1]));
  chunk_rows_ = static_cast<std::int64_t>(sizes[0]);
  chunk_row_bytes_ = static_cast<std::int64_t>(sizes[1]) * entry_;
  for (int f = 0; f < H5Pget_nfilters(creation); ++f) {
    unsigned flags = 0;
    std::size_t values = 0;
    const int filter =
        H5Pget_filter2(creation, static_cast<unsigned>(f), &flags, &values, nullptr, 0, nullptr, nullptr);
    if (filter != H5Z_FILTER_DEFLATE && filter != H5Z_FILTER_SHUFFLE && filter != H5Z_FILTER_FLETCHER32)
      throw refused(fmt::format("uses the filter {}, but only gzip, shuffle and fletcher32 are supported", filter));
    filters_.push_back(filter);
  }
}

// Memory is allocated for what a header claims, so it may not claim more than the file can hold.
void StoredArray::check_size() const {
  const bool compressed = std::find(filters_.begin(), filters_.end(), H5Z_FILTER_DEFLATE) != filters_.end();
  const double claimed = static_cast<double>(rows_) * static_cast<double>(row_bytes_);
  const auto held = static_cast<double>(file_->blob().size());
  const bool cut = !chunked_ && H5Dget_storage_size(dataset_) < static_cast<hsize_t>(bytes());
  if (cut || claimed > held * (compressed ? strongest_deflate : 1))
    throw user_error("{} claims {} entries, but the file has {} bytes; it is damaged, prepare it again", where_, rows_,
                     thousands(static_cast<std::int64_t>(file_->blob().size())));
}

UserError StoredArray::unreadable(const std::string& what) const {
  file_->blob().check_unchanged();  // has a better message if the file has changed
  return user_error("{}: {} cannot be read; the file is damaged, copy or prepare it again", where_, what);
}

StoredArray::Bytes StoredArray::unfiltered(Bytes stored, std::uint32_t skipped) const {
  const auto whole = static_cast<std::size_t>(chunk_rows_ * chunk_row_bytes_);
  const std::size_t most = whole + 4 * filters_.size();  // checksums may have been compressed too
  bool good = true;
  for (std::size_t f = filters_.size(); f-- > 0 && good;) {
    // Only compression may be skipped, where it gains nothing.
    const bool left_out = f < 32 && (skipped >> f & 1) != 0;
    if (left_out)
      good = filters_[f] == H5Z_FILTER_DEFLATE;
    else if (filters_[f] == H5Z_FILTER_DEFLATE)
      good = static_cast<double>(whole) <= static_cast<double>(stored.size()) * strongest_deflate &&
             hdf5::undo_deflate(stored, most);
    else if (filters_[f] == H5Z_FILTER_FLETCHER32)
      good = hdf5::undo_fletcher32(stored);
    else
      good = hdf5::undo_shuffle(stored, static_cast<std::size_t>(entry_));
  }
  if (!good || stored.size() != whole) return {};
  return stored;
}

StoredArray::Bytes StoredArray::read_chunk(std::int64_t row, std::int64_t column) const {
  const hsize_t at[2] = {static_cast<hsize_t>(row), static_cast<hsize_t>(column / entry_)};
  const auto whole = static_cast<hsize_t>(chunk_rows_ * chunk_row_bytes_);
  const hsize_t most = whole + whole / 64 + 4096;  // deflate's overhead on incompressible data, and checksums
  hsize_t size = 0;
  std::uint32_t skipped = 0;
  if (H5Dget_chunk_storage_size(dataset_, at, &size) < 0 || size == 0 || size > most || size > file_->blob().size())
    return {};
  Bytes stored(static_cast<std::size_t>(size));
  if (!file_->read_chunk(dataset_, at, skipped, stored.data(), stored.size())) return {};
  return unfiltered(std::move(stored), skipped);
}

// Without chunks: as many rows as one read fetches.
StoredArray::Bytes StoredArray::read_rows(std::int64_t row) const {
  const std::int64_t count = std::min(chunk_rows_, rows_ - row);
  Bytes out(static_cast<std::size_t>(count * row_bytes_));
  const hsize_t start[2] = {static_cast<hsize_t>(row), 0};
  const hsize_t size[2] = {static_cast<hsize_t>(count), static_cast<hsize_t>(row_bytes_ / entry_)};
  const hsize_t entries = size[0] * size[1];
  const hdf5::Handle space = H5Dget_space(dataset_), memory = H5Screate_simple(1, &entries, nullptr);
  const hid_t type = entry_ == 1   ? H5T_NATIVE_UINT8
                     : entry_ == 2 ? H5T_NATIVE_UINT16
                     : entry_ == 4 ? H5T_NATIVE_UINT32
                                   : H5T_NATIVE_INT64;
  if (H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, size, nullptr) < 0 ||
      H5Dread(dataset_, type, memory, space, H5P_DEFAULT, out.data()) < 0)
    return {};
  return out;
}

const StoredArray::Bytes& StoredArray::chunk(std::int64_t band, std::int64_t column) const {
  if (band != band_) {
    chunks_.assign(static_cast<std::size_t>((row_bytes_ - 1) / chunk_row_bytes_ + 1), {});
    band_ = band;
  }
  Bytes& content = chunks_[static_cast<std::size_t>(column)];
  if (content.empty())
    content = chunked_ ? read_chunk(band * chunk_rows_, column * chunk_row_bytes_) : read_rows(band * chunk_rows_);
  if (content.empty()) throw unreadable(fmt::format("the chunk at row {}", band * chunk_rows_));
  return content;
}

void StoredArray::refuse_unknown_zeros(std::int64_t band, const Bytes& content) const {
  const std::int64_t rows = std::min(chunk_rows_, rows_ - band * chunk_rows_);
  if (verified_ || !all_zero(content.data(), static_cast<std::size_t>(rows * chunk_row_bytes_))) return;
  for (std::size_t i = 0; i + 1 < zero_chunks_.size(); i += 2)
    if (band >= zero_chunks_[i] && band - zero_chunks_[i] < zero_chunks_[i + 1]) return;
  verify();
  verified_ = true;
}

void StoredArray::copy(std::int64_t offset, std::int64_t count, std::uint8_t* out, bool refuse_zeros) const {
  LONGSTRIDE_CHECK(offset >= 0 && count >= 0 && count <= bytes() - offset, "{}: bytes {} + {} of {}", where_, offset,
                   count, bytes());
  const hdf5::Lock lock;
  while (count > 0) {
    const std::int64_t row = offset / row_bytes_, in_row = offset % row_bytes_;
    const std::int64_t band = row / chunk_rows_, column = in_row / chunk_row_bytes_;
    if (refuse_zeros) refuse_unknown_zeros(band, chunk(band, column));
    const Bytes& content = chunk(band, column);  // again, since verifying reads other chunks
    const std::int64_t at = row % chunk_rows_ * chunk_row_bytes_ + in_row % chunk_row_bytes_;
    // A run ends with its chunk's row, or with the chunk if that has whole rows.
    const std::int64_t run = chunk_row_bytes_ == row_bytes_
                                 ? chunk_rows_ * row_bytes_ - at
                                 : std::min(chunk_row_bytes_ - in_row % chunk_row_bytes_, row_bytes_ - in_row);
    const std::int64_t taken = std::min(run, count);
    std::copy_n(content.begin() + at, taken, out);
    offset += taken, out += taken, count -= taken;
  }
}

void StoredArray::read(std::int64_t offset, std::int64_t count, std::uint8_t* out) const {
  copy(offset, count, out, true);
  file_->blob().check_unchanged();  // last, so that it covers the read
}

void StoredArray::scan(const std::function<void(const std::uint8_t*, std::int64_t)>& piece) const {
  const std::int64_t band = chunk_rows_ * row_bytes_;  // read in whole bands, so that no chunk is read twice
  const std::int64_t at_once = std::max<std::int64_t>(1, piece_bytes / std::max<std::int64_t>(band, 1)) * band;
  Bytes buffer;
  for (std::int64_t at = 0; at < bytes(); at += static_cast<std::int64_t>(buffer.size())) {
    buffer.resize(static_cast<std::size_t>(std::min(at_once, bytes() - at)));
    copy(at, static_cast<std::int64_t>(buffer.size()), buffer.data(), false);
    piece(buffer.data(), static_cast<std::int64_t>(buffer.size()));
  }
  file_->blob().check_unchanged();
}

std::vector<std::uint8_t> StoredArray::read_all() const {
  Bytes out;
  out.reserve(static_cast<std::size_t>(std::min(bytes(), static_cast<std::int64_t>(file_->blob().size()))));
  Sha256 sha;
  scan([&](const std::uint8_t* piece, std::int64_t count) {
    sha.update(piece, static_cast<std::size_t>(count));
    out.insert(out.end(), piece, piece + count);
  });
  compare_checksum(sha.hex());
  return out;
}

void StoredArray::verify() const {
  Sha256 sha;
  scan([&](const std::uint8_t* piece, std::int64_t count) { sha.update(piece, static_cast<std::size_t>(count)); });
  compare_checksum(sha.hex());
}

void StoredArray::compare_checksum(const std::string& found) const {
  if (!sha256_.empty() && found != sha256_)
    throw user_error("{} has the sha256 {}, but {} was written; the file is damaged, copy or prepare it again", where_,
                     found, sha256_);
}

}  // namespace longstride
