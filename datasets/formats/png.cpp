#include "datasets/formats/png.h"

#include <png.h>

#include <array>
#include <csetjmp>
#include <cstring>
#include <memory>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"

namespace longstride {
namespace {

constexpr std::uint32_t most_pixels = 64u << 20;

// libpng reports an error through longjmp, over which no C++ object may live. So the functions that call setjmp hold
// plain values only, and everything with a destructor is in here.
struct Reading {
  const std::uint8_t* bytes = nullptr;
  std::size_t count = 0, at = 0;
  char message[128] = "";
  std::vector<png_bytep> rows;
  Picture picture;
  bool transparent = false, deep = false, large = false;
};

void on_error(png_structp png, png_const_charp message) {
  auto* reading = static_cast<Reading*>(png_get_error_ptr(png));
  std::strncpy(reading->message, message, sizeof reading->message - 1);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void supply(png_structp png, png_bytep out, std::size_t count) {
  auto* reading = static_cast<Reading*>(png_get_io_ptr(png));
  if (count > reading->count - reading->at) png_error(png, "it is cut short");
  std::memcpy(out, reading->bytes + reading->at, count);
  reading->at += count;
}

// Whether every chunk (4 bytes of length, 4 of name, the data, 4 of checksum) up to IEND lies within the file. libpng
// makes room for a chunk of up to 2 GiB before it finds that the file ends.
bool chunks_lie_inside(const std::uint8_t* bytes, std::size_t count) {
  constexpr std::size_t signature = 8, head = 8, checksum = 4;
  for (std::size_t at = signature; at < count;) {
    const std::size_t left = count - at;
    if (left < head + checksum) return false;
    std::uint64_t length = 0;
    for (int i = 0; i < 4; ++i) length = length << 8 | bytes[at + i];
    if (length > left - head - checksum) return false;
    if (std::memcmp(bytes + at + 4, "IEND", 4) == 0) return true;
    at += head + length + checksum;
  }
  return false;
}

// Makes room for the picture; apart from decode() so that no allocation is between setjmp and longjmp there.
void make_room(Reading& reading, std::size_t rows, std::size_t columns, std::size_t channels) {
  reading.picture.rows = static_cast<std::int64_t>(rows);
  reading.picture.columns = static_cast<std::int64_t>(columns);
  reading.picture.channels = static_cast<std::int64_t>(channels);
  reading.picture.pixels.resize(rows * columns * channels);
  reading.rows.resize(rows);
  for (std::size_t r = 0; r < rows; ++r) reading.rows[r] = reading.picture.pixels.data() + r * columns * channels;
}

bool decode(png_structp png, png_infop info, Reading& reading) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_read_fn(png, &reading, supply);
  png_set_user_limits(png, most_pixels, most_pixels);
  // Texts, profiles and the like are passed over, unread; transparency is not among them.
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_read_info(png, info);
  const png_uint_32 rows = png_get_image_height(png, info), columns = png_get_image_width(png, info);
  const int type = png_get_color_type(png, info);
  reading.transparent = (type & PNG_COLOR_MASK_ALPHA) != 0 || png_get_valid(png, info, PNG_INFO_tRNS) != 0;
  reading.deep = png_get_bit_depth(png, info) > 8;
  reading.large = static_cast<std::uint64_t>(rows) * columns > most_pixels;
  if (reading.transparent || reading.deep || reading.large) return false;
  if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  const std::size_t channels = png_get_channels(png, info);
  if (png_get_rowbytes(png, info) != columns * channels) png_error(png, "unexpected row size");
  make_room(reading, rows, columns, channels);
  png_read_image(png, reading.rows.data());
  png_read_end(png, nullptr);
  return true;
}

struct Decoder {
  explicit Decoder(Reading& reading)
      : png(png_create_read_struct(PNG_LIBPNG_VER_STRING, &reading, on_error, on_warning)) {
    if (png != nullptr) info = png_create_info_struct(png);
    LONGSTRIDE_CHECK(info != nullptr, "libpng {} gives no decoder", PNG_LIBPNG_VER_STRING);
  }
  ~Decoder() { png_destroy_read_struct(&png, &info, nullptr); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  png_structp png;
  png_infop info = nullptr;
};

}  // namespace

Picture read_png(const std::uint8_t* bytes, std::size_t count, const std::string& name) {
  if (count < 8 || png_sig_cmp(bytes, 0, 8) != 0) throw user_error("{}: is no PNG file, by its first bytes", name);
  if (count < 16 || std::memcmp(bytes + 12, "IHDR", 4) != 0)
    throw user_error("{}: is a damaged PNG file (it does not begin with its header); replace or remove it", name);
  if (!chunks_lie_inside(bytes, count))
    throw user_error("{}: is a damaged PNG file (it is cut short); replace or remove it", name);
  Reading reading;
  reading.bytes = bytes;
  reading.count = count;
  Decoder decoder(reading);
  if (decode(decoder.png, decoder.info, reading)) return std::move(reading.picture);
  if (reading.deep) throw user_error("{}: has 16 bits a channel; convert it to 8-bit RGB first", name);
  if (reading.transparent) throw user_error("{}: has an alpha channel or transparency; flatten it to RGB first", name);
  if (reading.large) throw user_error("{}: has more than {} pixels; scale it down first", name, most_pixels);
  throw user_error("{}: is a damaged PNG file ({}); replace or remove it", name, reading.message);
}

void write_png(const std::string& path, std::int64_t rows, std::int64_t columns, std::int64_t channels,
               const std::uint8_t* pixels) {
  LONGSTRIDE_CHECK(rows > 0 && columns > 0 && (channels == 1 || channels == 3), "a picture of {} x {} x {}", rows,
                   columns, channels);
  if (rows * columns > static_cast<std::int64_t>(most_pixels))
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
