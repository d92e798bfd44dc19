#include "datasets/formats/byte_input.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "framework/core/errors.h"

namespace longstride {

void MemoryBlob::read(std::uint64_t offset, void* out, std::size_t count) const {
  if (offset > size_ || count > size_ - offset)
    throw user_error("{}: ends at byte {}, where more bytes are expected", name_, size_);
  if (count > 0) std::memcpy(out, bytes_ + offset, count);
}

void BlobStream::read(void* out, std::size_t count) {
  if (count > left()) throw user_error("{}: ends {} bytes too early; the file is cut short", name(), count - left());
  blob_.read(at_, out, count);
  at_ += count;
  if (sha_ != nullptr) sha_->update(out, count);
}

std::string recognised_format(const Blob& blob) {
  using namespace std::string_view_literals;
  struct Magic {
    std::string_view bytes;
    const char* format;
  };
  static constexpr Magic known[] = {
      {"\x1f\x8b"sv, "gzip"},
      {"\xfd"
       "7zXZ"sv,
       "xz"},
      {"BZh"sv, "bzip2"},
      {"7z\xbc\xaf\x27\x1c"sv, "7z"},
      {"\x04\x22\x4d\x18"sv, "lz4"},
      {"]\0\0\x80\0\xff\xff\xff\xff"sv, "lzma"},  // as xz writes it
      {"LZIP\x01"sv, "lzip"},
      {"Rar!\x1a\x07"sv, "rar"},
      {"\x1f\x9d"sv, "compress"},
      {"PK\x03\x04"sv, "zip"},
      {"PK\x05\x06"sv, "zip"},  // without files
      {"\x28\xb5\x2f\xfd"sv, "zstd"},
      {"\x80\x02"sv, "pickle"},
      {"\x80\x03"sv, "pickle"},
      {"\x80\x04"sv, "pickle"},
      {"\x89PNG"sv, "PNG"},
      {"\xff\xd8\xff"sv, "JPEG"},
      {"\x93NUMPY"sv, "NumPy"},
      {"\x89HDF"sv, "HDF5"},
  };
  char head[512] = {};  // as long as the header of a tar archive
  const std::size_t count = std::min<std::size_t>(sizeof head, static_cast<std::size_t>(blob.size()));
  blob.read(0, head, count);
  const std::string_view first(head, count);
  constexpr std::size_t tar_magic_at = 257;
  if (count > tar_magic_at && first.substr(tar_magic_at).starts_with("ustar"sv)) return "tar";
  for (const Magic& magic : known)
    if (first.starts_with(magic.bytes)) return magic.format;
  if (first.starts_with("RIFF"sv) && first.substr(0, 12).ends_with("WEBP"sv)) return "WebP";
  return "";
}

}  // namespace longstride
