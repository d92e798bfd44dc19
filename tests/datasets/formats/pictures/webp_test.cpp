#include "datasets/formats/pictures/webp.h"

#include "tests/datasets/formats/pictures/golden.h"
#include "tests/datasets/formats/pictures/webp_encoder.h"

namespace longstride {
namespace {

TEST(WebP, IsPillowsToOneOf255) {
  for (const char* name : {"tall.webp", "clear.webp"}) expect_golden(name);
}

TEST(WebP, KeepsLosslessPixels) {
  const Bytes rgb = random_bytes(5 * 7 * 3, 1);
  const Picture picture = decode(encode_webp(5, 7, rgb, 3));
  EXPECT_EQ(picture.rows, 5);
  EXPECT_EQ(picture.columns, 7);
  EXPECT_EQ(picture.channels, 3);
  EXPECT_EQ(picture.pixels, rgb);
  Bytes rgba = random_bytes(5 * 7 * 4, 2);
  for (std::size_t i = 3; i < rgba.size(); i += 4) rgba[i] |= 1;  // colours behind alpha 0 are not kept
  EXPECT_EQ(decode(encode_webp(5, 7, rgba, 4)).pixels, rgba);
}

TEST(WebP, HasAnOrientation) {
  const Bytes rgb = random_bytes(5 * 7 * 3, 3), file = encode_webp(5, 7, rgb, 3);
  const Picture picture = decode(extended_webp(file, 5, 7, false, exif(3, false)));
  EXPECT_EQ(picture.orientation, 3);
  EXPECT_EQ(picture.pixels, rgb);
}

TEST(WebP, RefusesAnimations) {
  const Bytes file = extended_webp(encode_webp(5, 7, random_bytes(105, 3), 3), 5, 7, true, {});
  expect_user_error([&] { decode(file); }, "a: is animated; save the picture that is wanted");
}

TEST(WebP, RefusesEveryTruncation) {
  for (const float quality : {-1.0f, 70.0f})
    for (const int channels : {3, 4})
      expect_truncations_refused(
          encode_webp(11, 13, random_bytes(static_cast<std::size_t>(143 * channels), 4), channels, quality));
}

TEST(WebP, SurvivesDamage) {
  for (const float quality : {-1.0f, 70.0f})
    expect_damage_survived(
        extended_webp(encode_webp(11, 13, random_bytes(143 * 4, 5), 4, quality), 11, 13, false, exif(6, true)), 51);
}

// 16,384 x 16,384 pixels, stated in the header of a lossless file of a few bytes.
TEST(WebP, RefusesHugeSizes) {
  Bytes file = encode_webp(5, 7, random_bytes(105, 6), 3);
  for (const std::size_t at : {21u, 22u, 23u}) file[at] = 0xFF;
  file[24] |= 0x0F;
  expect_user_error([&] { decode(file); }, "a: has more than 67108864 pixels; scale it down first");
}

}  // namespace
}  // namespace longstride
