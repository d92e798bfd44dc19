// Pictures that Pillow wrote, and what it makes of them at 16 x 16 pixels (tests/golden/pictures.py).
#pragma once
#include <cstdlib>
#include <string>

#include "datasets/formats/pictures/fit.h"
#include "tests/datasets/support.h"

namespace longstride {

inline PictureRules rules_of(std::int64_t pixels, PictureFit fit, PictureAlpha alpha = PictureAlpha::refuse) {
  PictureRules rules;
  rules.side = pixels;
  rules.convert_grey = true;
  rules.fit = fit;
  rules.alpha = alpha;
  return rules;
}

inline Picture decode(const Bytes& file, const std::string& name = "a") {
  return decode_picture(file.data(), file.size(), name);
}

inline std::string golden_picture(const std::string& name) {
  return std::string(LONGSTRIDE_SOURCE_DIR) + "/tests/golden/pictures/" + name;
}

// The pixels differ by at most 1 of 255 from Pillow's.
inline void expect_golden(const std::string& name) {
  const Bytes file = get_file(golden_picture(name));
  ASSERT_FALSE(file.empty()) << name;
  for (const auto& [fit, ending] : {std::pair{PictureFit::crop, ".crop.png"}, {PictureFit::pad, ".pad.png"}}) {
    const Bytes wanted = decode(get_file(golden_picture(name + ending))).pixels;
    const Bytes found = fit_picture(decode(file), rules_of(16, fit, PictureAlpha::white), name);
    ASSERT_EQ(found.size(), 768u);
    ASSERT_EQ(found.size(), wanted.size());
    int worst = 0;
    for (std::size_t i = 0; i < found.size(); ++i) worst = std::max(worst, std::abs(int{found[i]} - int{wanted[i]}));
    EXPECT_LE(worst, 1) << name << ending;
  }
}

// Every shorter piece of the file is refused by one sentence that begins with its name.
inline void expect_truncations_refused(const Bytes& file) {
  for (std::size_t size = 0; size < file.size(); ++size) {
    SCOPED_TRACE(fmt::format("{} of {} bytes", size, file.size()));
    expect_user_error([&] { decode(Bytes(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size))); }, "a: ");
  }
  EXPECT_FALSE(decode(file).pixels.empty());
}

// Damaged anywhere: one sentence, which at least `refused` of the damages get, or a picture of the stated size.
inline void expect_damage_survived(const Bytes& whole, int refused) {
  int found = 0;
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const std::uint8_t value : {0x00, 0xFF, 0x5A}) {
      Bytes file = whole;
      file[at] = value;
      try {
        const Picture decoded = decode(file);
        EXPECT_EQ(decoded.pixels.size(), static_cast<std::size_t>(decoded.rows * decoded.columns * decoded.channels));
      } catch (const UserError& error) {
        ++found;
        EXPECT_EQ(std::string(error.what()).find("a: "), 0u) << error.what();
      }
    }
  EXPECT_GE(found, refused);
}

// EXIF with one entry of its directory, the orientation.
inline Bytes exif(std::uint8_t orientation, bool big_endian) {
  if (big_endian)
    return {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, orientation, 0, 0, 0, 0, 0, 0};
  return {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, orientation, 0, 0, 0, 0, 0, 0, 0};
}

}  // namespace longstride
