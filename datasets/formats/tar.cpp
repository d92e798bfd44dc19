#include "datasets/formats/tar.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "framework/core/errors.h"

namespace longstride {
namespace {

constexpr std::uint64_t block = 512;
constexpr std::uint64_t longest_extension = 1 << 20;

std::uint64_t padded(std::uint64_t size) { return (size + block - 1) / block * block; }

std::string text_field(const char* header, std::size_t at, std::size_t size) {
  return std::string(header + at, std::find(header + at, header + at + size, '\0'));
}

UserError damaged(const ByteStream& stream, const char* what) {
  return user_error("{}: is no tar archive or a damaged one ({}); copy or download it anew", stream.name(), what);
}

// Octal digits, or for large values GNU's big-endian binary with the first bit set.
std::uint64_t number_field(const ByteStream& stream, const char* header, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  if ((static_cast<unsigned char>(header[at]) & 0x80) != 0) {
    for (std::size_t i = 1; i < size; ++i) {
      if (value >> 55 != 0) throw damaged(stream, "a number is out of range");
      value = value << 8 | static_cast<unsigned char>(header[at + i]);
    }
    return value;
  }
  for (std::size_t i = 0; i < size; ++i) {
    const char c = header[at + i];
    if (c == ' ' && value == 0) continue;
    if (c == ' ' || c == '\0') break;
    if (c < '0' || c > '7') throw damaged(stream, "a number is not octal");
    value = value << 3 | static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

bool checksum_holds(const ByteStream& stream, const char* header) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < block; ++i)
    sum += i >= 148 && i < 156 ? std::uint64_t{' '} : static_cast<unsigned char>(header[i]);
  return sum == number_field(stream, header, 148, 8);
}

}  // namespace

bool TarReader::read_header(char* header) {
  if (stream_.left() < block)
    throw user_error("{}: stops without the end mark of a tar archive; it is cut short", stream_.name());
  stream_.read(header, block);
  if (std::all_of(header, header + block, [](char c) { return c == 0; })) {
    stream_.skip(stream_.left());
    return false;
  }
  if (!checksum_holds(stream_, header)) throw damaged(stream_, "the checksum of a header is wrong");
  return true;
}

std::string TarReader::read_extension(std::uint64_t size) {
  if (size > longest_extension) throw damaged(stream_, "a name is too long");
  std::string text(static_cast<std::size_t>(padded(size)), '\0');
  stream_.read(text.data(), text.size());
  text.resize(static_cast<std::size_t>(size));
  return text;
}

// Records "<length> <key>=<value>\n", the length counting the whole record.
void TarReader::apply_pax(const std::string& records) {
  const char* at = records.data();
  const char* const end = at + records.size();
  while (at < end) {
    std::size_t length = 0;
    const auto [digits, error] = std::from_chars(at, end, length);
    if (error != std::errc() || length < 5 || length > static_cast<std::size_t>(end - at) || digits + 1 >= at + length)
      throw damaged(stream_, "a pax record has a wrong length");
    const std::string record(digits + 1, at + length - 1);
    if (record.starts_with("path=")) long_name_ = record.substr(5);
    if (record.starts_with("size=")) {
      const char* value = record.data() + 5;
      const auto [last, bad] = std::from_chars(value, record.data() + record.size(), pax_size_);
      if (bad != std::errc()) throw damaged(stream_, "a pax size is no number");
      has_pax_size_ = true;
    }
    at += length;
  }
}

bool TarReader::next() {
  stream_.skip(pending_);
  pending_ = 0;
  for (;;) {
    char header[block];
    if (!read_header(header)) return false;
    const char type = header[156];
    size_ = number_field(stream_, header, 124, 12);
    if (type == 'L') {
      const std::string name = read_extension(size_);
      long_name_ = name.substr(0, name.find('\0'));
      continue;
    }
    if (type == 'x' || type == 'g') {
      const std::string records = read_extension(size_);
      if (type == 'x') apply_pax(records);
      continue;
    }
    if (has_pax_size_) size_ = pax_size_;
    const std::string prefix = std::memcmp(header + 257, "ustar\0", 6) == 0 ? text_field(header, 345, 155) : "";
    name_ = !long_name_.empty() ? long_name_ : (prefix.empty() ? "" : prefix + "/") + text_field(header, 0, 100);
    long_name_.clear();
    has_pax_size_ = false;
    const bool regular = type == '0' || type == '\0' || type == '7';
    if (!regular && type >= '1' && type <= '6') size_ = 0;  // links and folders have no content
    if (size_ > stream_.left()) throw user_error("{}: stops inside {}; it is cut short", stream_.name(), name_);
    pending_ = std::min(padded(size_), stream_.left());
    if (regular) return true;
    stream_.skip(pending_);
    pending_ = 0;
  }
}

void TarReader::read(void* out) {
  LONGSTRIDE_CHECK(pending_ >= size_, "{} is read twice", name_);
  stream_.read(out, static_cast<std::size_t>(size_));
  pending_ -= size_;
}

}  // namespace longstride
