// Replaces jpeg_libjpeg.cpp if libjpeg was not found at configure time.
#include "datasets/formats/pictures/jpeg.h"
#include "framework/core/errors.h"

namespace longstride {

Picture read_jpeg(const std::uint8_t*, std::size_t, const std::string& name, std::uint64_t) {
  throw user_error(
      "{}: reading JPEG files needs libjpeg, which this build lacks; install libjpeg-dev and configure again, or "
      "convert it to PNG first",
      name);
}

}  // namespace longstride
