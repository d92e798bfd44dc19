// Recognises files by their first bytes, whatever their names: formats that hold no text, and the notes that stand in
// for a file, none of which may be read as data by mistake.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"

namespace longstride {

enum class FormatFamily : std::uint8_t {
  none,      // not known: text, or anything
  pointer,   // a note of Git LFS or git-annex that the file is elsewhere
  encoding,  // text, but not in bytes of ASCII or UTF-8
  picture,
  sound,
  unread_sound,  // sound that `prepare audio` cannot read
  document,      // text in a format of its own
  other,         // tables, arrays, weights, programs ..
};

struct FileFormat {
  FormatFamily family = FormatFamily::none;
  const char* name = "";  // "Parquet"; of text "UTF-16"
};

inline constexpr std::size_t first_bytes = 512;  // enough to recognise every format

FileFormat format_of(std::string_view first);

// The words that follow the name in a message: "begins like Parquet", "is a Git-LFS pointer ..".
std::string begins_like(const FileFormat& format);
// The same, and that it is no text.
std::string described(const FileFormat& format);
// The remedy, instead of reading it as text: "fetch the file with `git lfs pull`".
std::string remedy_of(const FileFormat& format);

// UserError if the file is a pointer. Reads only files as short as pointers are.
void refuse_pointer(const InputFile& file);

}  // namespace longstride
