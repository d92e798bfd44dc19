// WebP files, for the tests of the reader.
#pragma once
#include <webp/encode.h>

#include <cstdint>
#include <string>
#include <vector>

namespace longstride {

// channels: 3 (RGB) or 4 (RGBA). quality: 0 to 100, or below 0: lossless.
inline std::vector<std::uint8_t> encode_webp(int height, int width, const std::vector<std::uint8_t>& pixels,
                                             int channels, float quality = -1) {
  std::uint8_t* bytes = nullptr;
  const int row = width * channels;
  std::size_t size = 0;
  if (channels == 3)
    size = quality < 0 ? WebPEncodeLosslessRGB(pixels.data(), width, height, row, &bytes)
                       : WebPEncodeRGB(pixels.data(), width, height, row, quality, &bytes);
  else
    size = quality < 0 ? WebPEncodeLosslessRGBA(pixels.data(), width, height, row, &bytes)
                       : WebPEncodeRGBA(pixels.data(), width, height, row, quality, &bytes);
  const std::vector<std::uint8_t> out(bytes, bytes + size);
  WebPFree(bytes);
  return out;
}

inline void append_chunk(std::vector<std::uint8_t>& out, const std::string& name,
                         const std::vector<std::uint8_t>& content) {
  out.insert(out.end(), name.begin(), name.end());
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<std::uint8_t>(content.size() >> 8 * i));
  out.insert(out.end(), content.begin(), content.end());
  if (content.size() % 2 != 0) out.push_back(0);
}

// The extended format around a simple file of up to 256 x 256 pixels: an animation of it, or with EXIF.
inline std::vector<std::uint8_t> extended_webp(const std::vector<std::uint8_t>& simple, int height, int width,
                                               bool animated, const std::vector<std::uint8_t>& exif) {
  constexpr std::uint8_t animation = 2, has_exif = 8;
  const auto rows = static_cast<std::uint8_t>(height - 1), columns = static_cast<std::uint8_t>(width - 1);
  const std::vector<std::uint8_t> picture(simple.begin() + 12, simple.end());
  std::vector<std::uint8_t> body = {'W', 'E', 'B', 'P'};
  append_chunk(body, "VP8X", {animated ? animation : has_exif, 0, 0, 0, columns, 0, 0, rows, 0, 0});
  if (animated) {
    append_chunk(body, "ANIM", {0, 0, 0, 0, 0, 0});
    std::vector<std::uint8_t> frame = {0, 0, 0, 0, 0, 0, columns, 0, 0, rows, 0, 0, 100, 0, 0, 0};
    frame.insert(frame.end(), picture.begin(), picture.end());
    for (int i = 0; i < 2; ++i) append_chunk(body, "ANMF", frame);
  } else {
    body.insert(body.end(), picture.begin(), picture.end());
    append_chunk(body, "EXIF", exif);
  }
  std::vector<std::uint8_t> out;
  append_chunk(out, "RIFF", body);
  return out;
}

}  // namespace longstride
