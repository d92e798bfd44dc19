// Replaces webp_libwebp.cpp if libwebp was not found at configure time.
#include "datasets/formats/pictures/webp.h"
#include "framework/core/errors.h"

namespace longstride {

Picture read_webp(const std::uint8_t*, std::size_t, const std::string& name, std::uint64_t) {
  throw user_error(
      "{}: reading WebP files needs libwebp, which this build lacks; install libwebp-dev and configure again, or "
      "convert it to PNG first",
      name);
}

}  // namespace longstride
