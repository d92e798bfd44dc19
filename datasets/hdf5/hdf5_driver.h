// The driver through which HDF5 reads and writes files.
//
// HDF5's own driver returns zeros where a file was truncated after it was opened. After a failed write HDF5 cannot
// close the file: it keeps it open, tries again when the process ends, and crashes. With this driver, reading past the
// end fails, and a failed write is recorded for the caller to report while HDF5 closes the file as if it had succeeded.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "datasets/formats/byte_input.h"
#include "datasets/hdf5/hdf5_guard.h"
#include "datasets/hdf5/hdf5_handle.h"

namespace longstride::hdf5 {

// The bytes of one file. Functions return false on failure.
class Medium {
 public:
  virtual ~Medium() = default;
  virtual bool writable() const = 0;
  virtual std::uint64_t size() const = 0;
  virtual bool read(std::uint64_t offset, void* out, std::size_t count, H5FD_mem_t kind) = 0;
  virtual bool write(std::uint64_t offset, const void* bytes, std::size_t count) = 0;
  virtual bool resize(std::uint64_t size) = 0;
};

// For reading, from a file or from memory.
class BlobMedium final : public Medium {
 public:
  explicit BlobMedium(std::shared_ptr<const Blob> blob) : blob_(blob), guard_(blob) {}
  const Blob& blob() const { return *blob_; }
  // Limits the bytes of an array that HDF5 may read at once: it does not check how much room there is.
  void limit_arrays(std::uint64_t bytes) { most_of_arrays_ = bytes; }
  bool writable() const override { return false; }
  std::uint64_t size() const override { return blob_->size(); }
  bool read(std::uint64_t offset, void* out, std::size_t count, H5FD_mem_t kind) override;
  bool write(std::uint64_t, const void*, std::size_t) override { return false; }
  bool resize(std::uint64_t) override { return false; }

 private:
  std::shared_ptr<const Blob> blob_;
  HeaderGuard guard_;
  std::uint64_t most_of_arrays_ = ~std::uint64_t{0};
};

// For writing, to a file that exists. After the first failure nothing more reaches the disk: what HDF5 writes until it
// has closed the file (some megabytes at most) is kept in memory, so that it reads back what it wrote.
class DiskMedium final : public Medium {
 public:
  explicit DiskMedium(const std::string& path);  // UserError if it cannot be opened
  ~DiskMedium() override;
  DiskMedium(const DiskMedium&) = delete;
  DiskMedium& operator=(const DiskMedium&) = delete;

  int error() const { return error_; }  // errno of the first write that failed; 0: none
  bool writable() const override { return true; }
  std::uint64_t size() const override { return size_; }
  bool read(std::uint64_t offset, void* out, std::size_t count, H5FD_mem_t kind) override;
  bool write(std::uint64_t offset, const void* bytes, std::size_t count) override;
  bool resize(std::uint64_t size) override;

 private:
  void keep(std::uint64_t offset, const std::uint8_t* bytes, std::size_t count);
  void read_disk(std::uint64_t offset, std::uint8_t* out, std::size_t count);

  int descriptor_ = -1, error_ = 0;
  std::uint64_t size_ = 0;
  std::map<std::uint64_t, std::vector<std::uint8_t>> kept_;  // by page number
};

// Under a Lock. `medium` must outlive the handle and all that is opened through it. Invalid if HDF5 refuses.
Handle open_file(Medium& medium);
Handle create_file(Medium& medium);

}  // namespace longstride::hdf5
