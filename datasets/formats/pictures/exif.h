// The one entry of EXIF that changes what a picture shows.
#pragma once
#include <cstddef>
#include <cstdint>

namespace longstride {

// The orientation, 1 (upright) to 8, of an EXIF block as it stands in a JPEG, PNG or WebP file. 1 if the block has
// none or cannot be read: that does not damage the picture.
int exif_orientation(const std::uint8_t* bytes, std::size_t count);

}  // namespace longstride
