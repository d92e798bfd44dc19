// JPEG files, for the tests of the reader.
#pragma once
#include <cstdio>
// libjpeg's header needs stdio.h before it.
#include <jpeglib.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

namespace longstride {

struct JpegSettings {
  int channels = 3;  // 1: grey, 3: RGB, 4: CMYK
  int quality = 90;
  bool progressive = false;
  std::vector<std::uint8_t> exif = {};  // without "Exif"
  bool ycck = false;                    // CMYK, stored as brightness and colours
};

inline std::vector<std::uint8_t> encode_jpeg(std::size_t height, std::size_t width,
                                             const std::vector<std::uint8_t>& pixels, const JpegSettings& settings) {
  jpeg_compress_struct info = {};
  jpeg_error_mgr errors = {};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = settings.channels;
  info.in_color_space = settings.channels == 1 ? JCS_GRAYSCALE : settings.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  if (settings.ycck) jpeg_set_colorspace(&info, JCS_YCCK);
  jpeg_set_quality(&info, settings.quality, TRUE);
  if (settings.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  if (!settings.exif.empty()) {
    std::vector<std::uint8_t> marker = {'E', 'x', 'i', 'f', 0, 0};
    marker.insert(marker.end(), settings.exif.begin(), settings.exif.end());
    jpeg_write_marker(&info, JPEG_APP0 + 1, marker.data(), static_cast<unsigned>(marker.size()));
  }
  while (info.next_scanline < height) {
    auto* row = const_cast<std::uint8_t*>(pixels.data() +
                                          info.next_scanline * width * static_cast<std::size_t>(settings.channels));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const std::vector<std::uint8_t> out(bytes, bytes + size);
  std::free(bytes);
  return out;
}

}  // namespace longstride
