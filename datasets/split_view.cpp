#include "datasets/split_view.h"

#include <algorithm>
#include <cstring>

#include "framework/core/errors.h"

namespace longstride {
namespace {

class Images final : public SequenceSet {
 public:
  Images(std::shared_ptr<const ByteStore> store, std::int64_t count, std::int64_t length)
      : store_(std::move(store)), count_(count), length_(length) {}
  std::int64_t sequences() const override { return count_; }
  std::int64_t length(std::int64_t) const override { return length_; }
  void read(std::int64_t sequence, std::int64_t offset, std::int64_t length, std::uint8_t* out) const override {
    LONGSTRIDE_CHECK(sequence >= 0 && sequence < count_ && offset >= 0 && length >= 0 && offset + length <= length_,
                     "bytes {} + {} of image {} of {}", offset, length, sequence, count_);
    store_->read(sequence * length_ + offset, length, out);
  }

 private:
  std::shared_ptr<const ByteStore> store_;
  std::int64_t count_, length_;
};

class Stream final : public SequenceSet {
 public:
  Stream(std::shared_ptr<const ByteStore> store, std::vector<std::int64_t> boundaries)
      : store_(std::move(store)), boundaries_(std::move(boundaries)) {
    if (boundaries_.back() == 0) boundaries_.resize(1);  // an empty split has no sequence
  }
  std::int64_t sequences() const override { return static_cast<std::int64_t>(boundaries_.size()) - 1; }
  std::int64_t length(std::int64_t sequence) const override { return begin(sequence + 1) - begin(sequence); }
  void read(std::int64_t sequence, std::int64_t offset, std::int64_t length, std::uint8_t* out) const override {
    LONGSTRIDE_CHECK(sequence >= 0 && sequence < sequences() && offset >= 0 && length >= 0 &&
                         length <= this->length(sequence) - offset,
                     "bytes {} + {} of sequence {} of {}", offset, length, sequence, sequences());
    store_->read(begin(sequence) + offset, length, out);
  }

 private:
  std::int64_t begin(std::int64_t sequence) const { return boundaries_[static_cast<std::size_t>(sequence)]; }

  std::shared_ptr<const ByteStore> store_;
  std::vector<std::int64_t> boundaries_;
};

}  // namespace

void ResidentBytes::read(std::int64_t offset, std::int64_t count, std::uint8_t* out) const {
  if (count > 0) std::memcpy(out, bytes_.data() + offset, static_cast<std::size_t>(count));
}

void StoredArray::read(std::int64_t offset, std::int64_t count, std::uint8_t* out) const {
  const hdf5::Lock lock;
  const hdf5::Handle space = H5Dget_space(dataset);
  const int rank = H5Sget_simple_extent_ndims(space);
  // A run of bytes is at most the rest of a row, some whole rows, and the start of a row.
  while (count > 0) {
    const std::int64_t row = offset / length, column = offset % length;
    const bool whole_rows = column == 0 && count >= length;
    const std::int64_t taken = whole_rows ? count / length * length : std::min(count, length - column);
    const hsize_t start[2] = {static_cast<hsize_t>(row), static_cast<hsize_t>(column)};
    const hsize_t size[2] = {static_cast<hsize_t>(whole_rows ? count / length : 1),
                             static_cast<hsize_t>(whole_rows ? length : taken)};
    const auto flat = static_cast<hsize_t>(taken);
    const hdf5::Handle memory = H5Screate_simple(1, &flat, nullptr);
    LONGSTRIDE_CHECK(rank == 1 || rank == 2, "{} has rank {}", where, rank);
    if (H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, size, nullptr) < 0 ||
        H5Dread(dataset, H5T_NATIVE_UINT8, memory, space, H5P_DEFAULT, out) < 0)
      throw user_error("{}: bytes {} to {} cannot be read; the file is damaged, copy or prepare it anew", where, offset,
                       offset + taken);
    offset += taken;
    out += taken;
    count -= taken;
  }
}

std::shared_ptr<const SequenceSet> images_view(std::shared_ptr<const ByteStore> store, std::int64_t count,
                                               std::int64_t length) {
  return std::make_shared<Images>(std::move(store), count, length);
}

std::shared_ptr<const SequenceSet> stream_view(std::shared_ptr<const ByteStore> store,
                                               std::vector<std::int64_t> boundaries) {
  return std::make_shared<Stream>(std::move(store), std::move(boundaries));
}

}  // namespace longstride
