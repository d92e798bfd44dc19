// Archives of small files, for the tests of the reader.
#pragma once
#include <archive.h>
#include <archive_entry.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace longstride {

using NamedFiles = std::vector<std::pair<std::string, std::vector<std::uint8_t>>>;

// format, filter and options by libarchive's names: "gnutar", "pax" or "zip"; "gzip", "xz" ..; "zip:compression=store".
inline std::vector<std::uint8_t> make_archive(const NamedFiles& files, const char* format, const char* filter = "",
                                              const char* options = "") {
  archive* out = archive_write_new();
  archive_write_set_format_by_name(out, format);
  if (*filter != 0) archive_write_add_filter_by_name(out, filter);
  if (*options != 0) archive_write_set_options(out, options);
  archive_write_set_bytes_per_block(out, 512);  // no padding after the end mark
  std::size_t size = 1 << 16;
  for (const auto& file : files) size += file.second.size() + 4096;
  std::vector<std::uint8_t> bytes(size);
  archive_write_open_memory(out, bytes.data(), bytes.size(), &size);
  for (const auto& [name, content] : files) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, name.c_str());
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_size(entry, static_cast<la_int64_t>(content.size()));
    archive_write_header(out, entry);
    archive_write_data(out, content.data(), content.size());
    archive_entry_free(entry);
  }
  archive_write_close(out);
  archive_write_free(out);
  bytes.resize(size);
  return bytes;
}

// Says in a zip archive that its names are UTF-8, as most programs do when they are not ASCII.
inline std::vector<std::uint8_t> with_utf8_names(std::vector<std::uint8_t> zip) {
  constexpr std::uint8_t utf8 = 8;  // in the second byte of the flags
  for (std::size_t i = 0; i + 9 < zip.size(); ++i) {
    if (zip[i] != 'P' || zip[i + 1] != 'K') continue;
    if (zip[i + 2] == 3 && zip[i + 3] == 4) zip[i + 7] |= utf8;
    if (zip[i + 2] == 1 && zip[i + 3] == 2) zip[i + 9] |= utf8;
  }
  return zip;
}

}  // namespace longstride
