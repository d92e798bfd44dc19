#include "datasets/formats/pictures/picture.h"

#include <algorithm>

#include "datasets/formats/byte_input.h"
#include "datasets/formats/input_files.h"
#include "datasets/formats/pictures/jpeg.h"
#include "datasets/formats/pictures/webp.h"
#include "datasets/formats/png.h"
#include "framework/core/errors.h"
#include "framework/core/files/first_bytes.h"

namespace longstride {

bool begins_like_picture(const std::uint8_t* bytes, std::size_t count) {
  const std::string format = recognised_format(MemoryBlob("", bytes, count));
  return format == "PNG" || format == "JPEG" || format == "WebP";
}

bool named_like_picture(const std::string& name) {
  const std::string extension = lower_extension(name);
  return extension == "png" || extension == "jpg" || extension == "jpeg" || extension == "webp";
}

Picture decode_picture(const std::uint8_t* bytes, std::size_t count, const std::string& name) {
  const std::string format = recognised_format(MemoryBlob(name, bytes, count));
  if (format == "PNG") return read_png(bytes, count, name);
  if (format == "JPEG") return read_jpeg(bytes, count, name);
  if (format == "WebP") return read_webp(bytes, count, name);
  const FileFormat known = format_of({reinterpret_cast<const char*>(bytes), std::min(count, first_bytes)});
  if (known.family == FormatFamily::pointer) throw user_error("{}: {}; {}", name, described(known), remedy_of(known));
  throw user_error("{}: is not a PNG, JPEG or WebP file, judging by its first bytes; replace or remove it", name);
}

}  // namespace longstride
