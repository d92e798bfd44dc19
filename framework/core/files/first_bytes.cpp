#include "framework/core/files/first_bytes.h"

#include <algorithm>
#include <initializer_list>

#include "framework/core/text/printable.h"

namespace longstride {
namespace {

using namespace std::string_view_literals;
using enum FormatFamily;

struct Magic {
  std::string_view bytes;
  FileFormat format;
  bool words = false;            // text may begin with them too
  std::size_t at = 0;            // where the bytes are
  std::string_view second = {};  // and at `second_at`, these
  std::size_t second_at = 0;
};

constexpr Magic known[] = {
    {"version https://git-lfs.github.com/spec/"sv, {pointer, "Git-LFS"}},
    {"version https://hawser.github.com/spec/"sv, {pointer, "Git-LFS"}},
    {"/annex/objects/"sv, {pointer, "git-annex"}},
    {"\x89PNG"sv, {picture, "PNG"}},
    {"\xff\xd8\xff"sv, {picture, "JPEG"}},
    {"GIF87a"sv, {picture, "GIF"}, true},
    {"GIF89a"sv, {picture, "GIF"}, true},
    {"RIFF"sv, {picture, "WebP"}, false, 0, "WEBP"sv, 8},
    {"II*\0"sv, {picture, "TIFF"}},
    {"MM\0*"sv, {picture, "TIFF"}},
    {"BM"sv, {picture, "BMP"}, false, 0, "\0\0\0\0"sv, 6},
    {"ftypavif"sv, {picture, "AVIF"}, false, 4},
    {"ftypheic"sv, {picture, "HEIC"}, false, 4},
    {"ftypmif1"sv, {picture, "HEIC"}, false, 4},
    {"\0\0\0\x0cjP  \r\n"sv, {picture, "JPEG 2000"}},
    {"\0\0\0\x0cJXL \r\n"sv, {picture, "JPEG XL"}},
    {"8BPS\0"sv, {picture, "Photoshop"}},
    {"v/1\x01"sv, {picture, "OpenEXR"}},
    {"RIFF"sv, {sound, "WAV"}, false, 0, "WAVE"sv, 8},
    {"RIFX"sv, {sound, "WAV"}, false, 0, "WAVE"sv, 8},
    {"RF64"sv, {sound, "WAV"}, false, 0, "WAVE"sv, 8},
    {"FORM"sv, {sound, "AIFF"}, false, 0, "AIF"sv, 8},
    {"fLaC\0"sv, {sound, "FLAC"}},
    {"fLaC\x80"sv, {sound, "FLAC"}},
    {"OggS\0"sv, {sound, "Ogg"}},
    {"ID3\x02"sv, {sound, "MP3"}},
    {"ID3\x03"sv, {sound, "MP3"}},
    {"ID3\x04"sv, {sound, "MP3"}},
    {".snd\0"sv, {sound, "AU"}},
    {"riff\x2e\x91\xcf\x11"sv, {sound, "W64"}},
    {"NIST_1A\n"sv, {sound, "NIST"}},
    {"Creative Voice File\x1a"sv, {sound, "VOC"}},
    {"caff\0"sv, {sound, "CAF"}},
    {"MThd\0"sv, {sound, "MIDI"}},
    {"ftypM4A"sv, {unread_sound, "MPEG-4 (such as M4A)"}, false, 4},
    {"\xff\xf1"sv, {unread_sound, "AAC"}},
    {"\xff\xf9"sv, {unread_sound, "AAC"}},
    {"ADIF"sv, {unread_sound, "AAC"}, true},
    {"\x30\x26\xb2\x75\x8e\x66\xcf\x11"sv, {unread_sound, "Windows Media (such as WMA)"}},
    {"#!AMR\n"sv, {unread_sound, "AMR"}, true},
    {"#!AMR-WB\n"sv, {unread_sound, "AMR"}, true},
    {"MAC "sv, {unread_sound, "Monkey's Audio"}, true},
    {"wvpk"sv, {unread_sound, "WavPack"}, true},
    {"TTA1"sv, {unread_sound, "True Audio"}, true},
    {"MPCK"sv, {unread_sound, "Musepack"}, true},
    {"MP+"sv, {unread_sound, "Musepack"}, true},
    {"DSD "sv, {unread_sound, "DSD"}, true},
    {"\x0b\x77"sv, {unread_sound, "AC-3"}, true},
    {"\x7f\xfe\x80\x01"sv, {unread_sound, "DTS"}},
    {".RMF"sv, {unread_sound, "RealMedia"}, true},
    {".ra\xfd"sv, {unread_sound, "RealAudio"}},
    {"ftyp"sv, {other, "MP4"}, true, 4},
    {"\x1a\x45\xdf\xa3"sv, {other, "Matroska"}},
    {"RIFF"sv, {other, "AVI"}, false, 0, "AVI "sv, 8},
    {"%PDF-"sv, {document, "PDF"}, true},
    {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv, {document, "Microsoft Office"}},
    {"PAR1"sv, {other, "Parquet"}, true},
    {"ARROW1\0"sv, {other, "Arrow"}},
    {"\xff\xff\xff\xff"sv, {other, "Arrow stream"}, false, 0, "\0\0"sv, 6},
    {"FEA1"sv, {other, "Feather"}, true},
    {"ORC"sv, {other, "ORC"}, true},
    {"Obj\x01"sv, {other, "Avro"}},
    {"\x89HDF"sv, {other, "HDF5"}},
    {"CDF\x01"sv, {other, "NetCDF"}},
    {"CDF\x02"sv, {other, "NetCDF"}},
    {"\x93NUMPY"sv, {other, "NumPy"}},
    {"MATLAB 5.0 MAT-file"sv, {other, "MATLAB"}},
    {"SQLite format 3\0"sv, {other, "SQLite"}},
    {"\x80\x02"sv, {other, "pickle"}},
    {"\x80\x03"sv, {other, "pickle"}},
    {"\x80\x04"sv, {other, "pickle"}},
    {"\x80\x05"sv, {other, "pickle"}},
    {"GGUF"sv, {other, "GGUF"}, true},
    {"\x7f"
     "ELF"sv,
     {other, "ELF"}},
    {"MZ\x90\0"sv, {other, "Windows program"}},
    {"\xcf\xfa\xed\xfe"sv, {other, "Mach-O"}},
    {"\xca\xfe\xba\xbe"sv, {other, "Java class or Mach-O"}},
    {"\0asm"sv, {other, "WebAssembly"}},
    {"!<arch>\n"sv, {other, "ar archive"}},
    {"\xed\xab\xee\xdb"sv, {other, "RPM"}},
    {"bplist00"sv, {other, "property list"}},
    {"\0\1\0\0\0"sv, {other, "TrueType"}},
    {"OTTO\0"sv, {other, "OpenType"}},
    {"wOFF\0"sv, {other, "WOFF"}},
    {"wOF2\0"sv, {other, "WOFF"}},
    {"\xff\xfe\0\0"sv, {encoding, "UTF-32"}},
    {"\0\0\xfe\xff"sv, {encoding, "UTF-32"}},
    {"\xff\xfe"sv, {encoding, "UTF-16"}},
    {"\xfe\xff"sv, {encoding, "UTF-16"}},
};

// Bytes that no text has, in whatever language.
bool has_control(std::string_view bytes) {
  return std::any_of(bytes.begin(), bytes.end(), [](char c) {
    return static_cast<std::uint8_t>(c) < ' ' && "\t\n\v\f\r\x1b"sv.find(c) == std::string_view::npos;
  });
}

// A frame of MPEG-1 or 2, layer III: eleven ones, version, layer, then a bit rate and a sampling rate that exist. It is
// no mark of UTF-16, whose second byte is 0xfe.
bool is_mp3(std::string_view first) {
  if (first.size() < 4 || first[0] != '\xff') return false;
  const auto second = static_cast<std::uint8_t>(first[1]), third = static_cast<std::uint8_t>(first[2]);
  const bool layer_3 = second == 0xfb || second == 0xfa || second == 0xf3 || second == 0xf2;
  return layer_3 && third >> 4 != 0 && third >> 4 != 15 && (third >> 2 & 3) != 3;
}

// Tensors in the format of Hugging Face: the size of a header in JSON, then the header.
bool is_safetensors(std::string_view first) {
  return first.size() >= 10 && first.substr(4, 4) == "\0\0\0\0"sv && first.substr(8, 2) == "{\""sv;
}

// Without a mark: every other byte of ASCII text is 0, or three of four are.
bool is_spaced_text(std::string_view first, std::size_t size, std::size_t letter) {
  constexpr std::size_t least = 8;  // letters
  if (first.size() < least * size) return false;
  for (std::size_t i = 0; i + size <= first.size(); i += size)
    for (std::size_t k = 0; k < size; ++k) {
      const char c = first[i + k];
      if (k != letter ? c != 0 : (c < ' ' && "\t\n\r"sv.find(c) == std::string_view::npos) || c == '\x7f') return false;
    }
  return true;
}

}  // namespace

FileFormat format_of(std::string_view first) {
  first = first.substr(0, first_bytes);
  for (const Magic& magic : known) {
    if (first.size() < magic.at || !first.substr(magic.at).starts_with(magic.bytes)) continue;
    if (!magic.second.empty() &&
        (first.size() < magic.second_at || !first.substr(magic.second_at).starts_with(magic.second)))
      continue;
    if (!magic.words || has_control(first) || (magic.format.family == document && first.substr(5, 2).ends_with('.')))
      return magic.format;
  }
  if (is_mp3(first)) return {sound, "MP3"};
  if (is_safetensors(first)) return {other, "safetensors"};
  for (const std::size_t size : {2, 4})
    for (const std::size_t letter : {std::size_t{0}, size - 1})
      if (is_spaced_text(first, size, letter))
        return {encoding, size == 2 ? (letter == 0 ? "UTF-16LE" : "UTF-16BE") : letter == 0 ? "UTF-32LE" : "UTF-32BE"};
  return {};
}

bool is_any_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string begins_like(const FileFormat& format) {
  if (format.family == pointer) return fmt::format("is a {} pointer, a note in place of the file", format.name);
  if (format.family == encoding) return fmt::format("is text in {}, whose letters are several bytes each", format.name);
  return fmt::format("begins like {}", format.name);
}

std::string described(const FileFormat& format) {
  const bool text = format.family == pointer || format.family == encoding;
  return begins_like(format) + (text ? "" : ", which is no text");
}

std::string remedy_of(const FileFormat& format) {
  switch (format.family) {
    case none:
      return "";
    case pointer:
      return format.name == "Git-LFS"sv ? "fetch the file with `git lfs pull`" : "fetch the file with `git annex get`";
    case encoding:
      return fmt::format("convert it with `iconv -f {} -t UTF-8 < OLD > NEW`", format.name);
    case picture:
      return is_any_of(format.name, {"PNG", "JPEG", "WebP"})
                 ? "prepare pictures with `longstride prepare images`"
                 : "convert pictures to PNG for `longstride prepare images`";
    case sound:
      if (format.name == "MIDI"sv) return "it holds notes; render them to WAV for `longstride prepare audio`";
      return "prepare sound with `longstride prepare audio`";
    case unread_sound:
      return "convert sound to WAV for `longstride prepare audio`";
    case document:
      return fmt::format("extract its text first, as with `{}`", format.name == "PDF"sv ? "pdftotext" : "pandoc");
    case other:
      return "write the text that it holds to a file of its own first";
  }
  return "";
}

void refuse_pointer(const InputFile& file) {
  constexpr std::uint64_t longest = 1024;  // by the specification of Git LFS
  if (file.size() == 0 || file.size() >= longest) return;
  std::string whole(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, whole.data(), whole.size());
  const FileFormat format = format_of(whole);
  if (format.family == pointer)
    throw user_error("{}: {}; {}", printable(file.path()), described(format), remedy_of(format));
}

}  // namespace longstride
