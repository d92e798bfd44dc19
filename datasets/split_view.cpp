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

std::shared_ptr<const SequenceSet> images_view(std::shared_ptr<const ByteStore> store, std::int64_t count,
                                               std::int64_t length) {
  return std::make_shared<Images>(std::move(store), count, length);
}

std::shared_ptr<const SequenceSet> stream_view(std::shared_ptr<const ByteStore> store,
                                               std::vector<std::int64_t> boundaries) {
  return std::make_shared<Stream>(std::move(store), std::move(boundaries));
}

}  // namespace longstride
