// The part of a file that is being looked at, so that walking its headers takes one read per 64 KiB.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "datasets/formats/byte_input.h"

namespace longstride {

class BlobWindow {
 public:
  explicit BlobWindow(const Blob& blob) : blob_(blob) {}

  const Blob& blob() const { return blob_; }
  std::uint64_t size() const { return blob_.size(); }

  // `count` bytes from `offset` on, fewer only at the end of the file. Valid until the next call.
  std::string_view at(std::uint64_t offset, std::size_t count) {
    if (offset >= size()) return {};
    count = static_cast<std::size_t>(std::min<std::uint64_t>(count, size() - offset));
    if (offset < first_ || offset + count > first_ + bytes_.size()) {
      bytes_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(std::max(count, least), size() - offset)));
      blob_.read(offset, bytes_.data(), bytes_.size());
      first_ = offset;
    }
    return std::string_view(bytes_).substr(static_cast<std::size_t>(offset - first_), count);
  }

  // Where `text` next occurs from `offset` on; size() if nowhere.
  std::uint64_t find(std::string_view text, std::uint64_t offset) {
    while (offset + text.size() <= size()) {
      const std::string_view part = at(offset, least);
      if (const std::size_t found = part.find(text); found != std::string_view::npos) return offset + found;
      offset += part.size() - text.size() + 1;
    }
    return size();
  }

 private:
  static constexpr std::size_t least = 1 << 16;

  const Blob& blob_;
  std::uint64_t first_ = 0;
  std::string bytes_;
};

}  // namespace longstride
