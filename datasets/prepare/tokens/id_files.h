// Files of 16-bit ids in little-endian order, as nanoGPT writes them (train.bin), or behind a header of 1,024 bytes, as
// llm.c does: 256 int32, the first three 20240520, 1 and the number of ids.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "datasets/dataset.h"

namespace longstride {

class IdFile {
 public:
  // UserError if it cannot be read, has no ids, ends within one, or has a header that does not fit.
  explicit IdFile(const std::string& path);
  std::int64_t count() const { return count_; }  // ids
  // All ids in order, in pieces. UserError, with the place, for one that is not below `vocabulary`.
  void read(std::int64_t vocabulary, const std::function<void(std::span<const std::uint16_t>)>& piece);
  // After read().
  SourceFile source() const { return source_; }

 private:
  std::shared_ptr<const Blob> blob_;
  std::int64_t begin_ = 0, count_ = 0;
  SourceFile source_;
};

}  // namespace longstride
