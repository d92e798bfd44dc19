#include "datasets/formats/sound/other_sound.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "datasets/formats/input_files.h"
#include "datasets/formats/sound/blob_window.h"
#include "datasets/formats/sound/stated_length.h"
#include "framework/core/files/first_bytes.h"

namespace longstride {
namespace {

std::string quoted(const std::string& path) {
  std::string out = "'";
  for (const char c : path.starts_with('-') ? "./" + path : path) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

}  // namespace

std::string other_sound_format(const Blob& blob) {
  BlobWindow file(blob);
  const FileFormat format = format_of(file.at(after_tags(file), first_bytes));
  const std::string name = format.name;
  const bool video = name == "MP4" || name == "Matroska" || name == "AVI";  // sound may be all that is in it
  return format.family == FormatFamily::unread_sound || video ? name : "";
}

bool named_like_other_sound(const std::string& path) {
  constexpr std::string_view extensions[] = {"m4a", "m4b", "aac", "wma", "amr", "ape", "wv",  "tta",
                                             "mpc", "dsf", "ac3", "dts", "ra",  "mka", "weba"};
  return std::find(std::begin(extensions), std::end(extensions), lower_extension(path)) != std::end(extensions);
}

std::string conversion_to_flac(const std::string& path) {
  return "ffmpeg -i " + quoted(path) + " " + quoted(std::filesystem::path(path).replace_extension(".flac").string());
}

}  // namespace longstride
