// PNG files of every colour type, for the tests of the reader.
#pragma once
#include <png.h>
#include <zlib.h>

#include <cstdint>
#include <vector>

namespace longstride {

struct PngSettings {
  int type = PNG_COLOR_TYPE_RGB;
  int bits = 8;
  bool interlaced = false;
  double gamma = 0;  // 0: no gamma chunk
};

// `rows` holds the packed bytes of all rows. Palettes have 4 entries: entry k is (k, 2k + 1, 255 - k).
inline std::vector<std::uint8_t> encode_png(std::size_t height, std::size_t width,
                                            const std::vector<std::uint8_t>& rows, const PngSettings& settings) {
  std::vector<std::uint8_t> out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &out,
      [](png_structp p, png_bytep bytes, std::size_t count) {
        auto* to = static_cast<std::vector<std::uint8_t>*>(png_get_io_ptr(p));
        to->insert(to->end(), bytes, bytes + count);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), settings.bits,
               settings.type, settings.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_BASE,
               PNG_FILTER_TYPE_BASE);
  if (settings.gamma > 0) png_set_gAMA(png, info, settings.gamma);
  if (settings.type == PNG_COLOR_TYPE_PALETTE) {
    png_color palette[4];
    for (int k = 0; k < 4; ++k)
      palette[k] = {static_cast<png_byte>(k), static_cast<png_byte>(2 * k + 1), static_cast<png_byte>(255 - k)};
    png_set_PLTE(png, info, palette, 4);
  }
  png_write_info(png, info);
  const std::size_t row_bytes = png_get_rowbytes(png, info);
  std::vector<png_bytep> pointers(height);
  for (std::size_t r = 0; r < height; ++r) pointers[r] = const_cast<png_bytep>(rows.data() + r * row_bytes);
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return out;
}

inline void put_big_endian(std::uint8_t* to, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<std::uint8_t>(value >> (24 - 8 * i));
}

// Gives every chunk within the file the checksum of its content.
inline void set_chunk_checksums(std::vector<std::uint8_t>& file) {
  for (std::size_t at = 8; at + 12 <= file.size();) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) length = length << 8 | file[at + i];
    if (length > file.size() - at - 12) return;
    const auto content = static_cast<uInt>(length + 4);
    put_big_endian(file.data() + at + 8 + length, static_cast<std::uint32_t>(crc32(0, file.data() + at + 4, content)));
    at += length + 12;
  }
}

}  // namespace longstride
