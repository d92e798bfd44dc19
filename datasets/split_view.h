// Where the bytes of a split are (in memory or in the file), and how they are divided into sequences.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/core/batch_source.h"

namespace longstride {

struct Labels;

// Facts about a split besides its bytes.
struct SplitFacts {
  std::vector<std::int64_t> groups = {};      // where they end, over all sequences one after another
  std::shared_ptr<const Labels> labels = {};  // one set per sequence
  std::vector<std::uint16_t> group_labels = {};
  std::int64_t vocabulary = 256;
  double bytes_per_token = 1;  // SequenceSet
  std::string where = {};      // in messages
};

class ByteStore {
 public:
  virtual ~ByteStore() = default;
  // Bytes [offset, offset + count) of the split, counted over its sequences one after another. Thread-safe.
  virtual void read(std::int64_t offset, std::int64_t count, std::uint8_t* out) const = 0;
};

class ResidentBytes final : public ByteStore {
 public:
  explicit ResidentBytes(std::vector<std::uint8_t> bytes) : bytes_(std::move(bytes)) {}
  void read(std::int64_t offset, std::int64_t count, std::uint8_t* out) const override;

 private:
  std::vector<std::uint8_t> bytes_;
};

// `count` sequences of `length` bytes.
std::shared_ptr<const SequenceSet> images_view(std::shared_ptr<const ByteStore> store, std::int64_t count,
                                               std::int64_t length, SplitFacts facts = {});
// Sequences between successive boundaries.
std::shared_ptr<const SequenceSet> stream_view(std::shared_ptr<const ByteStore> store,
                                               std::vector<std::int64_t> boundaries, SplitFacts facts = {});
// One sequence of documents between successive boundaries.
std::shared_ptr<const SequenceSet> documents_view(std::shared_ptr<const ByteStore> store,
                                                  std::vector<std::int64_t> boundaries, SplitFacts facts = {});

}  // namespace longstride
