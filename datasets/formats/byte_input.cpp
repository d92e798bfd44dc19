#include "datasets/formats/byte_input.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "framework/core/errors.h"
#include "framework/core/files/first_bytes.h"

namespace longstride {

DamagedFile trailing_bytes(const std::string& name, std::uint64_t count, const std::string& format) {
  return DamagedFile(
      user_error("{}: {} bytes follow the end of its {} content; cut them off, or copy or download it again", name,
                 count, format));
}

FileBlob::FileBlob(const std::string& path, Pointers pointers) : file_(path) {
  if (pointers == Pointers::refuse) refuse_pointer(file_);
}

void MemoryBlob::read(std::uint64_t offset, void* out, std::size_t count) const {
  if (offset > size_ || count > size_ - offset)
    throw user_error("{}: ends at byte {}, where more bytes are expected", name_, size_);
  if (count > 0) std::memcpy(out, bytes_ + offset, count);
}

void BlobStream::read(void* out, std::size_t count) {
  if (count > left())
    throw user_error("{}: ends {} bytes too early; copy or download it again", name(), count - left());
  blob_.read(at_, out, count);
  at_ += count;
  if (sha_ != nullptr) sha_->update(out, count);
}

std::uint64_t number_of(std::string_view bytes, bool big_endian) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    sum = sum << 8 | static_cast<std::uint8_t>(bytes[big_endian ? i : bytes.size() - 1 - i]);
  return sum;
}

namespace {

constexpr std::size_t tar_header = 512;

// By its magic, or by the sum of the first header's bytes, as tar had no magic before POSIX. Some programs added up
// signed bytes.
bool is_tar(std::string_view first) {
  constexpr std::size_t magic_at = 257, sum_at = 148, sum_size = 8;
  if (first.size() > magic_at && first.substr(magic_at).starts_with("ustar")) return true;
  if (first.size() < tar_header || first[0] == 0) return false;
  std::string_view digits = first.substr(sum_at, sum_size);
  digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
  digits = digits.substr(0, digits.find_first_not_of("01234567"));
  long stated = 0, sum = 0, signed_sum = 0;
  if (digits.empty()) return false;
  for (const char digit : digits) stated = stated * 8 + (digit - '0');
  for (std::size_t i = 0; i < tar_header; ++i) {
    const char byte = i >= sum_at && i < sum_at + sum_size ? ' ' : first[i];
    sum += static_cast<std::uint8_t>(byte);
    signed_sum += static_cast<std::int8_t>(byte);
  }
  return stated == sum || stated == signed_sum;
}

// The format has no magic: its usual parameters, a size of the dictionary that programs choose, the size of the
// content, or all ones where it was not known, and a zero.
bool is_lzma(std::string_view first) {
  constexpr std::size_t header = 13;
  if (first.size() <= header || first[0] != ']' || first[header] != 0) return false;
  const std::uint64_t dictionary = number_of(first.substr(1, 4), false), content = number_of(first.substr(5, 8), false);
  const std::uint64_t one_bit = std::bit_floor(dictionary);
  const bool chosen = dictionary >= 4096 && (dictionary == one_bit || dictionary == one_bit + one_bit / 2);
  return chosen && (content == UINT64_MAX || content < std::uint64_t{1} << 38);
}

}  // namespace

bool begins_skippable_frame(std::string_view first) {
  return first.size() >= 4 && number_of(first.substr(0, 4), false) >> 4 == 0x184D2A5;
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
      {"LZIP\x01"sv, "lzip"},
      {"Rar!\x1a\x07"sv, "rar"},
      {"\x1f\x9d"sv, "compress"},
      {"PK\x03\x04"sv, "zip"},
      {"PK\x05\x06"sv, "zip"},  // without files
      {"PK\x07\x08PK\x03\x04"sv, "split zip"},
      {"\x28\xb5\x2f\xfd"sv, "zstd"},
  };
  char head[tar_header] = {};
  const std::size_t count = std::min<std::size_t>(sizeof head, static_cast<std::size_t>(blob.size()));
  blob.read(0, head, count);
  const std::string_view first(head, count);
  if (is_tar(first)) return "tar";
  if (is_lzma(first)) return "lzma";
  if (begins_skippable_frame(first)) return "zstd";
  for (const Magic& magic : known)
    if (first.starts_with(magic.bytes)) return magic.format;
  return format_of(first).name;
}

}  // namespace longstride
