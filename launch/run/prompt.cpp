#include "launch/run/prompt.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "datasets/formats/byte_input.h"
#include "datasets/formats/pictures/fit.h"
#include "datasets/prepare/encode_sound.h"
#include "framework/core/errors.h"
#include "framework/core/files/first_bytes.h"

namespace longstride {
namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr const char* purpose =
    "--prompt names a file whose bytes every sample begins with, or is - for standard input";

// At most `most` bytes behind `out`.
void read_more(std::istream& in, std::int64_t most, Bytes& out) {
  constexpr std::int64_t at_once = 1 << 16;
  while (in && most > 0) {
    const std::size_t before = out.size();
    out.resize(before + static_cast<std::size_t>(std::min(most, at_once)));
    in.read(reinterpret_cast<char*>(out.data() + before), static_cast<std::streamsize>(out.size() - before));
    out.resize(before + static_cast<std::size_t>(in.gcount()));
    most -= in.gcount();
  }
}

const char* content_of(DataKind kind) {
  return is_text(kind) ? "text" : kind == DataKind::audio ? "sound" : "pictures";
}

Bytes levels_of(const std::string& path, const SampleForm& form, std::int64_t most) {
  Bytes out;
  const auto file = open_audio(path);
  encode_sound(*file, form.rate, [&](const std::uint8_t* levels, std::int64_t count) {
    out.insert(out.end(), levels, levels + count);
    return static_cast<std::int64_t>(out.size()) <= most;
  });
  return out;
}

Bytes pixels_of(const Bytes& file, const SampleForm& form, const std::string& name) {
  Picture picture = upright(decode_picture(file.data(), file.size(), name));
  picture.orientation = 1;
  if (picture.rows != form.geometry.rows || picture.columns != form.geometry.columns)
    throw user_error("{}: is {} x {} pixels, but the model was trained on pictures of {} x {}; scale it to that size",
                     name, picture.columns, picture.rows, form.geometry.columns, form.geometry.rows);
  PictureRules rules;
  rules.side = form.geometry.rows;
  rules.convert_grey = true;
  rules.alpha = PictureAlpha::black;
  return fit_picture(std::move(picture), rules, name);
}

}  // namespace

Prompt read_prompt(const std::string& path, const SampleForm& form, std::int64_t most) {
  const bool standard = path == "-";
  const std::string name = standard ? "standard input" : path;
  std::error_code ignored;
  if (!standard && std::filesystem::is_directory(path, ignored))
    throw user_error("{}: is a directory; {}", name, purpose);
  std::ifstream file;
  if (!standard) file.open(path, std::ios::binary);
  std::istream& in = standard ? std::cin : file;
  if (!in) throw user_error("{}: cannot be read; {}", name, purpose);
  Prompt prompt;
  read_more(in, first_bytes, prompt.bytes);
  const FileFormat format = format_of({reinterpret_cast<const char*>(prompt.bytes.data()), prompt.bytes.size()});
  if (!standard && format.family == FormatFamily::none)
    if (const std::string packed = recognised_format(MemoryBlob(name, prompt.bytes.data(), prompt.bytes.size()));
        !packed.empty())
      throw user_error("{}: is packed ({}); unpack it first, or give the bytes as they are with --prompt - < {}", name,
                       packed, name);
  const bool sound = form.kind == DataKind::audio &&
                     (format.family == FormatFamily::sound || format.family == FormatFamily::unread_sound);
  prompt.picture = form.geometry.rows > 0 && format.family == FormatFamily::picture;
  if (sound && standard)
    throw user_error("{}: {}, which is read from a file; name it with --prompt", name, begins_like(format));
  if (sound) return {levels_of(path, form, most), false};
  constexpr std::int64_t largest_picture = std::int64_t{256} << 20;
  read_more(in, (prompt.picture ? largest_picture : most + 1) - static_cast<std::int64_t>(prompt.bytes.size()),
            prompt.bytes);
  if (in.bad()) throw user_error("{}: cannot be read; {}", name, purpose);
  if (prompt.bytes.empty()) throw user_error("{}: is empty; {}; leave it out to begin with nothing", name, purpose);
  if (prompt.picture) return {pixels_of(prompt.bytes, form, name), true};
  const bool note = format.family == FormatFamily::pointer || format.family == FormatFamily::encoding;
  if (format.family != FormatFamily::none && !standard)
    throw user_error("{}: {}, and the model was trained on {}; {}, or give the bytes as they are with --prompt - < {}",
                     name, begins_like(format), content_of(form.kind),
                     note ? remedy_of(format) : std::string("choose such a file"), name);
  prompt.bytes.resize(std::min(prompt.bytes.size(), static_cast<std::size_t>(most) + 1));
  return prompt;
}

}  // namespace longstride
