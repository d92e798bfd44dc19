// Pictures with 8 bits per channel as PNG files.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "datasets/formats/pictures/picture.h"

namespace longstride {

// pixels: (rows, columns, channels), channels 1 (grey) or 3 (RGB). Atomic. UserError if it cannot be written.
void write_png(const std::string& path, std::int64_t rows, std::int64_t columns, std::int64_t channels,
               const std::uint8_t* pixels);

// Decodes the content of a PNG file to grey or RGB, with alpha if it has any transparency, pixel values exactly as
// stored: palettes and grey of fewer bits are expanded, 16 bits per channel rounded to 8; gamma and colour profiles are
// not applied. UserError, beginning with `name`, for a file that is damaged, cut short or over most_picture_pixels.
Picture read_png(const std::uint8_t* bytes, std::size_t count, const std::string& name);

}  // namespace longstride
