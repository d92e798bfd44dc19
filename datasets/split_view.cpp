#include "datasets/split_view.h"

#include <algorithm>
#include <cstring>

#include "datasets/dataset.h"
#include "framework/core/errors.h"

namespace longstride {
namespace {

class Sequences final : public SequenceSet {
 public:
  Sequences(std::shared_ptr<const ByteStore> store, std::int64_t count, std::int64_t length, SplitFacts facts)
      : store_(std::move(store)), count_(count), length_(length), facts_(std::move(facts)) {}
  Sequences(std::shared_ptr<const ByteStore> store, std::vector<std::int64_t> boundaries,
            std::vector<std::int64_t> documents, SplitFacts facts)
      : store_(std::move(store)),
        boundaries_(std::move(boundaries)),
        documents_(std::move(documents)),
        facts_(std::move(facts)) {
    const bool empty = boundaries_.back() == 0;  // has no sequence
    count_ = empty ? 0 : static_cast<std::int64_t>(boundaries_.size()) - 1;
  }
  std::int64_t sequences() const override { return count_; }
  std::int64_t length(std::int64_t sequence) const override { return begin(sequence + 1) - begin(sequence); }
  void read(std::int64_t sequence, std::int64_t offset, std::int64_t length, std::uint8_t* out) const override {
    LONGSTRIDE_CHECK(
        sequence >= 0 && sequence < count_ && offset >= 0 && length >= 0 && length <= this->length(sequence) - offset,
        "tokens {} + {} of sequence {} of {}", offset, length, sequence, count_);
    store_->read((begin(sequence) + offset) * token_bytes(), length * token_bytes(), out);
    if (facts_.vocabulary != 256) check_ids({out, token_bytes() > 1}, begin(sequence) + offset, length);
  }
  std::int64_t token_bytes() const override { return facts_.vocabulary > 256 ? 2 : 1; }
  double bytes_per_token() const override { return facts_.bytes_per_token; }

  std::span<const std::int64_t> documents(std::int64_t) const override { return documents_; }
  RowEnds groups(std::int64_t sequence) const override {
    return facts_.groups.empty() ? RowEnds{} : RowEnds{facts_.groups, begin(sequence)};
  }
  std::span<const std::uint32_t> labels(std::int64_t sequence) const override {
    if (facts_.labels == nullptr || std::ssize(facts_.labels->values) != count_ * facts_.labels->each) return {};
    const std::size_t each = static_cast<std::size_t>(facts_.labels->each);
    return std::span(facts_.labels->values).subspan(static_cast<std::size_t>(sequence) * each, each);
  }
  std::span<const std::uint16_t> group_labels() const override { return facts_.group_labels; }

 private:
  // A model has no row for an id beyond its vocabulary, which only another program can have written.
  void check_ids(kernels::Ids ids, std::int64_t first, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i)
      if (ids[i] >= facts_.vocabulary)
        throw user_error("{}: token {} is {}, but ids are below {}; prepare the file again", facts_.where, first + i,
                         ids[i], facts_.vocabulary);
  }
  std::int64_t begin(std::int64_t sequence) const {
    return boundaries_.empty() ? sequence * length_ : boundaries_[static_cast<std::size_t>(sequence)];
  }

  std::shared_ptr<const ByteStore> store_;
  std::int64_t count_ = 0, length_ = 0;
  std::vector<std::int64_t> boundaries_;  // empty: all sequences have one length
  std::vector<std::int64_t> documents_;   // where they end in the one sequence
  SplitFacts facts_;
};

}  // namespace

void ResidentBytes::read(std::int64_t offset, std::int64_t count, std::uint8_t* out) const {
  if (count > 0) std::memcpy(out, bytes_.data() + offset, static_cast<std::size_t>(count));
}

std::shared_ptr<const SequenceSet> images_view(std::shared_ptr<const ByteStore> store, std::int64_t count,
                                               std::int64_t length, SplitFacts facts) {
  return std::make_shared<Sequences>(std::move(store), count, length, std::move(facts));
}

std::shared_ptr<const SequenceSet> stream_view(std::shared_ptr<const ByteStore> store,
                                               std::vector<std::int64_t> boundaries, SplitFacts facts) {
  return std::make_shared<Sequences>(std::move(store), std::move(boundaries), std::vector<std::int64_t>{},
                                     std::move(facts));
}

std::shared_ptr<const SequenceSet> documents_view(std::shared_ptr<const ByteStore> store,
                                                  std::vector<std::int64_t> boundaries, SplitFacts facts) {
  return std::make_shared<Sequences>(std::move(store), std::vector<std::int64_t>{0, boundaries.back()}, boundaries,
                                     std::move(facts));
}

}  // namespace longstride
