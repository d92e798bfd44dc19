#include "datasets/formats/zip/zip_directory.h"

#include <algorithm>
#include <optional>

#include "datasets/formats/sound/blob_window.h"
#include "framework/core/text/numbers.h"
#include "framework/core/text/printable.h"

namespace longstride {
namespace {

using namespace std::string_view_literals;

// The records and their fields (PKWARE's APPNOTE.TXT, 4.3). Numbers are little-endian.
constexpr std::string_view end_mark = "PK\5\6"sv, wide_end_mark = "PK\6\6"sv, wide_locator_mark = "PK\6\7"sv,
                           entry_mark = "PK\1\2"sv, file_mark = "PK\3\4"sv;
constexpr std::size_t end_size = 22, locator_size = 20, wide_end_size = 56, entry_size = 46, file_size = 30;
constexpr std::uint64_t wide = 0xFFFFFFFF;  // the number is in a field of 64 bits

std::uint64_t number(std::string_view record, std::size_t at, std::size_t size) {
  return number_of(record.substr(at, size), false);
}

class ZipDirectory {
 public:
  explicit ZipDirectory(const Blob& blob) : blob_(blob), window_(blob) {}

  std::int64_t files() {
    find();
    std::int64_t files = 0;
    for (std::uint64_t i = 0; i < entries_; ++i) files += next_has_content() ? 1 : 0;
    return files;
  }

 private:
  // Finds the directory and counts its entries. Bytes before the archive shift it, as in one that unpacks itself.
  void find() {
    constexpr std::uint64_t longest_comment = 0xFFFF;
    const std::uint64_t size = blob_.size(), least = size - std::min(size, longest_comment + end_size);
    for (std::uint64_t at = size - std::min<std::uint64_t>(size, end_size) + 1; at-- > least;) {
      const std::string end(window_.at(at, end_size));
      if (!end.starts_with(end_mark)) continue;
      entries_ = number(end, 10, 2);
      std::uint64_t bytes = number(end, 12, 4), offset = number(end, 16, 4), end_at = at;
      read_wide_end(at, bytes, offset, end_at);
      if (bytes > end_at || offset > end_at - bytes) continue;
      at_ = end_at - bytes;
      shift_ = at_ - offset;
      return;
    }
    throw damaged("the end of its directory is missing");
  }

  // The record that may precede the end, with numbers of 64 bits.
  void read_wide_end(std::uint64_t end, std::uint64_t& bytes, std::uint64_t& offset, std::uint64_t& end_at) {
    if (end < locator_size + wide_end_size) return;
    const std::string locator(window_.at(end - locator_size, locator_size));
    if (!locator.starts_with(wide_locator_mark)) return;
    for (const std::uint64_t at : {end - locator_size - wide_end_size, number(locator, 8, 8)}) {
      const std::string record(window_.at(at, wide_end_size));
      if (record.size() < wide_end_size || !record.starts_with(wide_end_mark)) continue;
      entries_ = number(record, 32, 8), bytes = number(record, 40, 8), offset = number(record, 48, 8), end_at = at;
      return;
    }
    throw damaged("the end of its directory is not where it says");
  }

  // True if the next entry is a file with content. Compares its name with that in the file's own header.
  bool next_has_content() {
    const std::string entry(window_.at(at_, entry_size));
    if (entry.size() < entry_size || !entry.starts_with(entry_mark))
      throw damaged(fmt::format("its directory ends before the {} entries that it counts",
                                thousands(static_cast<std::int64_t>(entries_))));
    const std::uint64_t name_size = number(entry, 28, 2), extra_size = number(entry, 30, 2);
    const std::string name(window_.at(at_ + entry_size, name_size));
    const std::string extra(window_.at(at_ + entry_size + name_size, extra_size));
    at_ += entry_size + name_size + extra_size + number(entry, 32, 2);
    std::uint64_t place = number(entry, 42, 4);
    if (place == wide) place = wide_place(entry, extra).value_or(place);
    const std::string header = read(place + shift_, file_size);
    if (!header.starts_with(file_mark))
      throw damaged(fmt::format("'{}' is not where its directory says", printable(name)));
    const std::string own = read(place + shift_ + file_size, number(header, 26, 2));
    if (own != name)
      throw damaged(fmt::format("'{}' in its directory is '{}' in its own header", printable(name), printable(own)));
    return number(entry, 24, 4) > 0 && !name.ends_with('/') && !name.ends_with('\\');
  }

  // Field 1 has 8 bytes for each of the sizes, unpacked and packed, and the place, that do not fit 32 bits.
  static std::optional<std::uint64_t> wide_place(std::string_view entry, std::string_view extra) {
    constexpr std::size_t header = 4;
    while (extra.size() >= header) {
      const std::size_t size = number(extra, 2, 2), end = std::min(extra.size(), header + size);
      const std::size_t at = header + (number(entry, 24, 4) == wide ? 8 : 0) + (number(entry, 20, 4) == wide ? 8 : 0);
      if (number(extra, 0, 2) == 1 && at + 8 <= end) return number(extra, at, 8);
      extra.remove_prefix(end);
    }
    return std::nullopt;
  }

  // Fewer bytes at the end of the file.
  std::string read(std::uint64_t offset, std::uint64_t count) const {
    if (offset >= blob_.size()) return {};
    std::string bytes(std::min(count, blob_.size() - offset), '\0');
    blob_.read(offset, bytes.data(), bytes.size());
    return bytes;
  }

  DamagedFile damaged(const std::string& why) const {
    return DamagedFile(user_error("{}: is a damaged zip archive ({}); copy or download it again", blob_.name(), why));
  }

  const Blob& blob_;
  BlobWindow window_;
  std::uint64_t at_ = 0, shift_ = 0, entries_ = 0;
};

}  // namespace

std::int64_t files_in_zip_directory(const Blob& blob) { return ZipDirectory(blob).files(); }

}  // namespace longstride
