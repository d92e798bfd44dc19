// WebP files, through libwebp. In a build without it, no_webp.cpp replaces the reader and says so.
#pragma once
#include "datasets/formats/pictures/picture.h"

namespace longstride {

// Decodes to 3 (RGB) channels, or 4 if the file has alpha; colour profiles are not applied. UserError, beginning with
// `name`, for a file that is damaged, cut short, over `most` pixels, or animated.
Picture read_webp(const std::uint8_t* bytes, std::size_t count, const std::string& name,
                  std::uint64_t most = most_picture_pixels);

}  // namespace longstride
