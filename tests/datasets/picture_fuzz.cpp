// Any bytes read as a JPEG or WebP file, then fitted: an error, or a picture of the size that was asked for.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "datasets/formats/byte_input.h"
#include "datasets/formats/pictures/fit.h"
#include "datasets/formats/pictures/jpeg.h"
#include "datasets/formats/pictures/webp.h"
#include "framework/core/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longstride;
  // Large pictures are valid but slow to decode under the sanitizer, and test nothing new.
  constexpr std::uint64_t most = 1 << 14;
  PictureRules rules;
  rules.side = 5;
  rules.convert_grey = true;
  rules.fit = size % 2 == 0 ? PictureFit::crop : PictureFit::pad;
  rules.alpha = PictureAlpha::white;
  try {
    const bool webp = recognised_format(MemoryBlob("fuzz", data, size)) == "WebP";
    Picture picture = webp ? read_webp(data, size, "fuzz", most) : read_jpeg(data, size, "fuzz", most);
    if (picture.pixels.size() != static_cast<std::size_t>(picture.rows * picture.columns * picture.channels))
      std::abort();
    if (fit_picture(std::move(picture), rules, "fuzz").size() != 75) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
