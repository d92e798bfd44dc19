#include "datasets/prepare/zip_checksums.h"

#include <algorithm>
#include <string_view>

namespace longstride {
namespace {

using namespace std::string_view_literals;

std::string read_at(const Blob& blob, std::uint64_t offset, std::uint64_t count) {
  if (offset > blob.size() || count > blob.size() - offset) return "";
  std::string out(static_cast<std::size_t>(count), '\0');
  blob.read(offset, out.data(), out.size());
  return out;
}

std::uint64_t number_at(std::string_view bytes, std::size_t at, std::size_t size) {
  return number_of(bytes.substr(at, size), false);
}

struct Place {
  std::uint64_t offset = 0, bytes = 0;
};

// Where the directory is; nothing if the end of the archive does not say.
Place directory_of_zip(const Blob& blob) {
  constexpr std::uint64_t end_size = 22, longest_comment = 65535, locator_size = 20, end64_size = 56;
  const std::uint64_t first = blob.size() - std::min(blob.size(), end_size + longest_comment);
  const std::string tail = read_at(blob, first, blob.size() - first);
  const std::size_t end = tail.rfind("PK\5\6"sv);
  if (end == std::string::npos || tail.size() - end < end_size) return {};
  const Place place = {number_at(tail, end + 16, 4), number_at(tail, end + 12, 4)};
  if (place.offset != UINT32_MAX && place.bytes != UINT32_MAX) return place;
  if (end < locator_size || !std::string_view(tail).substr(end - locator_size).starts_with("PK\6\7"sv)) return {};
  const std::string end64 = read_at(blob, number_at(tail, end - locator_size + 8, 8), end64_size);
  if (!end64.starts_with("PK\6\6"sv)) return {};
  return {number_at(end64, 48, 8), number_at(end64, 40, 8)};
}

}  // namespace

std::unordered_map<std::string, std::uint32_t> zip_checksums(const Blob& blob) {
  constexpr std::size_t header = 46;
  constexpr std::uint64_t most = std::uint64_t{1} << 30;
  std::unordered_map<std::string, std::uint32_t> sums;
  const Place place = directory_of_zip(blob);
  if (place.bytes > most) return {};
  const std::string directory = read_at(blob, place.offset, place.bytes);
  for (std::size_t at = 0; at < directory.size();) {
    if (directory.size() - at < header || !std::string_view(directory).substr(at).starts_with("PK\1\2"sv)) return {};
    const std::size_t name = number_at(directory, at + 28, 2);
    const std::size_t more = number_at(directory, at + 30, 2) + number_at(directory, at + 32, 2);
    if (directory.size() - at - header < name + more) return {};
    sums[directory.substr(at + header, name)] = static_cast<std::uint32_t>(number_at(directory, at + 16, 4));
    at += header + name + more;
  }
  return sums;
}

}  // namespace longstride
