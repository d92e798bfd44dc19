#include "datasets/formats/png.h"

#include <png.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>

#include "datasets/formats/byte_input.h"
#include "datasets/formats/pictures/exif.h"
#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

UserError damaged(const std::string& name, const char* why) {
  return user_error("{}: is a damaged PNG file ({}); replace or remove it", name, why);
}

// libpng calls a header invalid whose picture exceeds its own limit. The columns and the rows are the header's first.
void refuse_beyond_libpng(const std::uint8_t* bytes, std::size_t count, const std::string& name) {
  constexpr std::size_t columns_at = 16, rows_at = 20, end = 24;
  constexpr std::int64_t most = 1'000'000, most_valid = 0x7FFFFFFF;
  if (count < end) return;
  const std::string_view head(reinterpret_cast<const char*>(bytes), end);
  const auto columns = static_cast<std::int64_t>(number_of(head.substr(columns_at, 4), true)),
             rows = static_cast<std::int64_t>(number_of(head.substr(rows_at, 4), true));
  if (std::max(columns, rows) > most && std::max(columns, rows) <= most_valid && std::min(columns, rows) > 0)
    throw user_error("{}: is {} x {} pixels, but at most {} columns or rows can be read; cut or scale it first", name,
                     thousands(columns), thousands(rows), thousands(most));
}

// An animation control chunk begins with the number of frames, of which libpng would read only the first.
void refuse_animation(const std::uint8_t* control, std::uint64_t length, const std::string& name) {
  const std::uint8_t still[4] = {0, 0, 0, 1};
  if (length >= sizeof still && std::memcmp(control, still, sizeof still) > 0)
    throw user_error("{}: is animated; save the picture that is wanted as a file of its own", name);
}

// The file without the chunks that do not define pixels: libpng would apply their gamma and profiles, and it allocates
// up to 2 GiB for a chunk before it finds that the file ends. A chunk has 4 bytes of length, 4 of name, the data and 4
// of checksum. The orientation is that of EXIF.
std::vector<std::uint8_t> pixel_chunks(const std::uint8_t* bytes, std::size_t count, const std::string& name,
                                       int& orientation) {
  constexpr std::size_t signature = 8, head = 8, checksum = 4;
  std::vector<std::uint8_t> out(bytes, bytes + signature);
  for (std::size_t at = signature; at < count;) {
    const std::size_t left = count - at;
    if (left < head + checksum) break;
    std::uint64_t length = 0;
    for (int i = 0; i < 4; ++i) length = length << 8 | bytes[at + i];
    if (length > left - head - checksum) break;
    const std::uint8_t* chunk = bytes + at;
    const bool critical = (chunk[4] & 0x20) == 0;
    at += head + length + checksum;
    if (critical || std::memcmp(chunk + 4, "tRNS", 4) == 0) out.insert(out.end(), chunk, bytes + at);
    if (std::memcmp(chunk + 4, "acTL", 4) == 0) refuse_animation(chunk + head, length, name);
    if (std::memcmp(chunk + 4, "eXIf", 4) == 0)
      orientation = exif_orientation(chunk + head, static_cast<std::size_t>(length));
    if (std::memcmp(chunk + 4, "IEND", 4) != 0) continue;
    if (std::memcmp(bytes + at - checksum, "\xae\x42\x60\x82", checksum) != 0) throw damaged(name, "IEND: CRC error");
    return out;
  }
  throw damaged(name, "it is cut short");
}

}  // namespace

Picture read_png(const std::uint8_t* bytes, std::size_t count, const std::string& name) {
  if (count < 8 || png_sig_cmp(bytes, 0, 8) != 0)
    throw user_error("{}: is not a PNG file, judging by its first bytes", name);
  if (count >= 16 && std::memcmp(bytes + 12, "CgBI", 4) == 0)
    throw user_error("{}: is Apple's own variant of PNG (CgBI), which is not read; convert it to PNG first", name);
  if (count < 16 || std::memcmp(bytes + 12, "IHDR", 4) != 0) throw damaged(name, "it does not begin with its header");
  refuse_beyond_libpng(bytes, count, name);
  Picture picture;
  const std::vector<std::uint8_t> file = pixel_chunks(bytes, count, name, picture.orientation);
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, decltype(&png_image_free)> freed(&image, png_image_free);
  if (png_image_begin_read_from_memory(&image, file.data(), file.size()) == 0) throw damaged(name, image.message);
  if (std::uint64_t{image.width} * image.height > most_picture_pixels)
    throw user_error("{}: has more than {} pixels; scale it down first", name, most_picture_pixels);
  picture.rounded = (image.format & PNG_FORMAT_FLAG_LINEAR) != 0;
  image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // 16 bits are not light either
  image.format &= PNG_FORMAT_FLAG_COLOR | PNG_FORMAT_FLAG_ALPHA;
  picture.rows = image.height, picture.columns = image.width;
  picture.channels = PNG_IMAGE_SAMPLE_CHANNELS(image.format);
  picture.pixels.resize(PNG_IMAGE_SIZE(image));
  if (png_image_finish_read(&image, nullptr, picture.pixels.data(), 0, nullptr) == 0)
    throw damaged(name, image.message);
  return picture;
}

void write_png(const std::string& path, std::int64_t rows, std::int64_t columns, std::int64_t channels,
               const std::uint8_t* pixels) {
  LONGSTRIDE_CHECK(rows > 0 && columns > 0 && (channels == 1 || channels == 3), "a picture of {} x {} x {}", rows,
                   columns, channels);
  if (rows * columns > static_cast<std::int64_t>(most_picture_pixels))
    throw user_error("{}: a picture of {} x {} is too large to be written as PNG", path, rows, columns);
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(columns);
  image.height = static_cast<png_uint_32>(rows);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  std::string out(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
  png_alloc_size_t size = out.size();
  if (png_image_write_to_memory(&image, out.data(), &size, 0, pixels, 0, nullptr) == 0)
    throw user_error("{}: cannot be encoded as PNG: {}", path, image.message);
  out.resize(size);
  write_file_atomically(path, out);
}

}  // namespace longstride
