// An array in an open HDF5 file, read and checked chunk by chunk.
//
// HDF5 only finds the chunks. Their filters are undone here, because HDF5 trusts the sizes in a file and writes past
// its buffers if they are wrong. Content is compared with the array's attribute `sha256`.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datasets/hdf5/hdf5_driver.h"
#include "datasets/split_view.h"
#include "framework/core/errors.h"

namespace longstride {

// An HDF5 file open for reading.
class Hdf5Input {
 public:
  // UserError, beginning with the blob's name, if it is not an HDF5 file.
  explicit Hdf5Input(std::shared_ptr<const Blob> blob);
  hid_t handle() const { return handle_; }
  const Blob& blob() const { return medium_.blob(); }
  const std::string& name() const { return blob().name(); }
  // Under the Lock: H5Dread_chunk, which reads as much as the file claims, limited to `size` bytes.
  bool read_chunk(hid_t dataset, const hsize_t* at, std::uint32_t& skipped_filters, std::uint8_t* out,
                  std::size_t size) const;

 private:
  mutable hdf5::BlobMedium medium_;
  hdf5::Handle handle_;  // closed before the medium
};

// "x.h5: is HDF5, but <why>; make the file with `longstride prepare`"
UserError not_ours(const std::string& path, const std::string& why);

class StoredArray final : public ByteStore {
 public:
  struct Type {
    int rank = 1;           // 1 or 2 dimensions
    std::size_t entry = 1;  // bytes: 1 for uint8, 2 for uint16, 4 for uint32, 8 for int64
  };
  // UserError if the file has no array of that name and type, or is too small to hold it.
  StoredArray(std::shared_ptr<const Hdf5Input> file, const std::string& name, Type type);
  // The dimensions and entries of an array that the file has; 0 if it cannot be read.
  static Type type_in(const Hdf5Input& file, const std::string& name);

  std::int64_t rows() const { return rows_; }
  std::int64_t row_bytes() const { return row_bytes_; }
  std::int64_t bytes() const { return rows_ * row_bytes_; }
  const std::string& where() const { return where_; }           // "x.h5: 'train'"
  const std::string& stored_sha256() const { return sha256_; }  // empty: none

  // For training on a file too large for memory. UserError if it cannot be read, if the file has changed since it was
  // opened, and for a chunk of zeros that the writer did not list, unless the checksum of the whole array matches.
  void read(std::int64_t offset, std::int64_t count, std::uint8_t* out) const override;
  // All bytes from first to last, in pieces.
  void scan(const std::function<void(const std::uint8_t* bytes, std::int64_t count)>& piece) const;
  // All bytes, compared with the stored checksum if there is one.
  std::vector<std::uint8_t> read_all() const;
  void verify() const;
  void compare_checksum(const std::string& found) const;

  // Pairs of (first, count): the chunks whose data really are zeros.
  void note_zero_chunks(std::vector<std::int64_t> pairs) { zero_chunks_ = std::move(pairs); }

 private:
  using Bytes = std::vector<std::uint8_t>;

  void read_type(Type type);
  void read_layout(Type type);
  void check_size() const;
  void copy(std::int64_t offset, std::int64_t count, std::uint8_t* out, bool refuse_zeros) const;
  const Bytes& chunk(std::int64_t band, std::int64_t column) const;
  Bytes read_rows(std::int64_t row) const;
  Bytes read_chunk(std::int64_t row, std::int64_t column) const;
  Bytes unfiltered(Bytes stored, std::uint32_t skipped) const;
  void refuse_unknown_zeros(std::int64_t band, const Bytes& content) const;
  UserError unreadable(const std::string& what) const;

  std::shared_ptr<const Hdf5Input> file_;
  hdf5::Handle dataset_;
  std::string name_, where_, sha256_;
  std::int64_t entry_ = 1, rows_ = 0, row_bytes_ = 1;
  bool chunked_ = false;
  std::int64_t chunk_rows_ = 1, chunk_row_bytes_ = 1;
  std::vector<int> filters_;  // in the order in which they were applied
  std::vector<std::int64_t> zero_chunks_;

  // Under the Lock: the chunks of the band of rows last read, and whether all bytes have been verified.
  mutable std::int64_t band_ = -1;
  mutable std::vector<Bytes> chunks_;
  mutable bool verified_ = false;
};

}  // namespace longstride
