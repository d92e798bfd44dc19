#include "datasets/formats/sound/other_sound.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "datasets/formats/input_files.h"
#include "datasets/formats/sound/blob_window.h"
#include "datasets/formats/sound/stated_length.h"

namespace longstride {
namespace {

std::string quoted(const std::string& path) {
  std::string out = "'";
  for (const char c : path.starts_with('-') ? "./" + path : path) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

}  // namespace

std::string other_sound_format(const Blob& blob) {
  using namespace std::string_view_literals;
  struct Magic {
    std::string_view bytes;
    const char* format;
  };
  static constexpr Magic known[] = {
      {"\xff\xf1"sv, "AAC"},
      {"\xff\xf9"sv, "AAC"},
      {"ADIF"sv, "AAC"},
      {"\x30\x26\xb2\x75\x8e\x66\xcf\x11"sv, "Windows Media (such as WMA)"},
      {"#!AMR"sv, "AMR"},
      {"\x1a\x45\xdf\xa3"sv, "Matroska or WebM"},
      {"MAC "sv, "Monkey's Audio"},
      {"wvpk"sv, "WavPack"},
      {"TTA1"sv, "True Audio"},
      {"MPCK"sv, "Musepack"},
      {"MP+"sv, "Musepack"},
      {"DSD "sv, "DSD"},
      {"\x0b\x77"sv, "AC-3"},
      {"\x7f\xfe\x80\x01"sv, "DTS"},
      {".RMF"sv, "RealMedia"},
      {".ra\xfd"sv, "RealAudio"},
  };
  BlobWindow file(blob);
  const std::string_view first = file.at(after_tags(file), 12);
  for (const Magic& magic : known)
    if (first.starts_with(magic.bytes)) return magic.format;
  if (first.size() == 12 && first.substr(4, 4) == "ftyp") return "MPEG-4 (such as M4A)";
  return first.starts_with("RIFF") && first.ends_with("AVI ") ? "AVI" : "";
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
