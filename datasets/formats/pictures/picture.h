// A picture as its file stores it, and its decoding by content: PNG, JPEG and WebP.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace longstride {

struct Picture {
  std::int64_t rows = 0, columns = 0;
  std::int64_t channels = 0;         // 1 (grey) or 3 (RGB); 2 or 4 with alpha, which comes last
  std::vector<std::uint8_t> pixels;  // (rows, columns, channels)
  int orientation = 1;               // by EXIF, 1 (upright) to 8: how the picture must be turned (fit.h)
  bool rounded = false;              // the file has 16 bits per channel
  bool cmyk = false;                 // the file has the colours of printing inks
};

// No picture may have more: a small file can state any size.
inline constexpr std::uint64_t most_picture_pixels = std::uint64_t{64} << 20;

// True if the file begins like a picture that decode_picture may be able to read. 12 bytes are enough.
bool begins_like_picture(const std::uint8_t* bytes, std::size_t count);
// True if the name ends like a picture's: ".png", ".jpg" ..
bool named_like_picture(const std::string& name);

// The first bytes decide the format. UserError, beginning with `name`, if the file is none of these, is damaged or cut
// short, has more than most_picture_pixels, is animated or has unknown colours.
Picture decode_picture(const std::uint8_t* bytes, std::size_t count, const std::string& name);

}  // namespace longstride
