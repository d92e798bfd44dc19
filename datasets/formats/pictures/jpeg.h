// JPEG files, through libjpeg. In a build without it, no_jpeg.cpp replaces the reader and says so.
#pragma once
#include "datasets/formats/pictures/picture.h"

namespace longstride {

// Decodes to 1 (grey) or 3 (RGB) channels, with libjpeg's slow, exact transform, as Pillow does; colour profiles are
// not applied, also to CMYK. UserError, beginning with `name`, for a file that is damaged or cut short, has
// more than `most` pixels, or has so many scans that decoding takes long.
Picture read_jpeg(const std::uint8_t* bytes, std::size_t count, const std::string& name,
                  std::uint64_t most = most_picture_pixels);

}  // namespace longstride
