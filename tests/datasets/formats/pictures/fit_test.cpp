#include "datasets/formats/pictures/fit.h"

#include "datasets/formats/pictures/exif.h"
#include "datasets/formats/pictures/resize.h"
#include "tests/datasets/formats/pictures/golden.h"
#include "tests/datasets/formats/png_encoder.h"
#include "tests/support/peak_memory.h"

namespace longstride {
namespace {

TEST(FitPicture, IsPillowsToOneOf255) {
  for (const char* name : {"small.png", "clear.png", "palette.png"}) expect_golden(name);
}

TEST(FitPicture, KeepsPicturesOfTheRightSizeExactly) {
  const Bytes pixels = random_bytes(8 * 8 * 3, 1);
  for (const PictureFit fit : {PictureFit::exact, PictureFit::crop, PictureFit::pad})
    EXPECT_EQ(fit_picture({8, 8, 3, pixels}, rules_of(8, fit), "a"), pixels);
}

TEST(FitPicture, CutsTheMiddleOrFillsWithBlack) {
  const Bytes grey = {1, 2, 3, 4, 5, 6, 7, 8};  // 2 rows of 4
  const auto fitted = [&](PictureFit fit, std::int64_t side) {
    const Bytes rgb = fit_picture({2, 4, 1, grey}, rules_of(side, fit), "a");
    Bytes out;
    for (std::size_t i = 0; i < rgb.size(); i += 3) out.push_back(rgb[i]);
    return out;
  };
  EXPECT_EQ(fitted(PictureFit::crop, 2), (Bytes{2, 3, 6, 7}));
  EXPECT_EQ(fitted(PictureFit::pad, 4), (Bytes{0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0}));
}

// A picture of one colour keeps it at every size, and thin ones do not vanish.
TEST(FitPicture, KeepsOneColourAtEverySize) {
  for (const std::int64_t rows : {1, 2, 5, 64, 301})
    for (const std::int64_t columns : {1, 3, 64, 997})
      for (const std::int64_t side : {1, 7, 64}) {
        const Bytes pixels(static_cast<std::size_t>(rows * columns), 200);
        const Bytes cropped = fit_picture({rows, columns, 1, pixels}, rules_of(side, PictureFit::crop), "a");
        EXPECT_EQ(cropped, Bytes(static_cast<std::size_t>(side * side * 3), 200)) << rows << " " << columns;
        const Bytes padded = fit_picture({rows, columns, 1, pixels}, rules_of(side, PictureFit::pad), "a");
        EXPECT_TRUE(std::all_of(padded.begin(), padded.end(), [](int v) { return v == 0 || v == 200; }));
        EXPECT_GE(std::count(padded.begin(), padded.end(), 200), side * 3);
      }
}

// Every input pixel of a reduction counts: the mean stays.
TEST(Resize, AveragesWhenItReduces) {
  Bytes stripes(64 * 64);
  for (std::size_t i = 0; i < stripes.size(); ++i) stripes[i] = i % 2 == 0 ? 0 : 200;
  const Picture small = resize({64, 64, 1, stripes}, {0, 0, 64, 64}, 4, 4);
  for (const int value : small.pixels) EXPECT_NEAR(value, 100, 3);
}

// The rows of a part need no others than those around it: as many bits as if the rest had been cut off, less memory.
TEST(Resize, ScalesOnlyTheRowsOfThePart) {
  const std::int64_t rows = 100000, columns = 3, side = 512;
  const Bytes pixels = random_bytes(static_cast<std::size_t>(rows * columns), 7);
  const std::size_t before = peak_bytes();
  const Picture part = resize({rows, columns, 1, pixels}, {0, 50000, 3, 50003}, side, side);
  EXPECT_LT(peak_bytes() - before, std::size_t{20} << 20);  // 51 MB for all rows
  const Bytes around(pixels.begin() + 49990 * columns, pixels.begin() + 50020 * columns);
  EXPECT_EQ(part.pixels, resize({30, columns, 1, around}, {0, 10, 3, 13}, side, side).pixels);
}

// 1 2 3     what a camera held in any of eight ways stores for it
// 4 5 6
TEST(Upright, UndoesEveryOrientation) {
  const Bytes wanted = {1, 2, 3, 4, 5, 6};
  const std::vector<std::pair<std::int64_t, Bytes>> stored = {
      {2, {1, 2, 3, 4, 5, 6}}, {2, {3, 2, 1, 6, 5, 4}}, {2, {6, 5, 4, 3, 2, 1}}, {2, {4, 5, 6, 1, 2, 3}},
      {3, {1, 4, 2, 5, 3, 6}}, {3, {3, 6, 2, 5, 1, 4}}, {3, {6, 3, 5, 2, 4, 1}}, {3, {4, 1, 5, 2, 6, 3}}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const auto& [rows, pixels] = stored[static_cast<std::size_t>(orientation - 1)];
    const Picture turned = upright({rows, 6 / rows, 1, pixels, orientation});
    EXPECT_EQ(turned.rows, 2) << orientation;
    EXPECT_EQ(turned.columns, 3) << orientation;
    EXPECT_EQ(turned.pixels, wanted) << orientation;
  }
}

TEST(Exif, ReadsTheOrientationAndNothingFromGarbage) {
  for (const bool big_endian : {false, true}) {
    const Bytes block = exif(6, big_endian);
    EXPECT_EQ(exif_orientation(block.data(), block.size()), 6);
    for (std::size_t size = 0; size < 22; ++size) EXPECT_EQ(exif_orientation(block.data(), size), 1) << size;
    for (const std::uint8_t wrong : {0, 9, 255}) {
      const Bytes other = exif(wrong, big_endian);
      EXPECT_EQ(exif_orientation(other.data(), other.size()), 1);
    }
  }
  Bytes prefixed = {'E', 'x', 'i', 'f', 0, 0};
  const Bytes block = exif(3, true);
  prefixed.insert(prefixed.end(), block.begin(), block.end());
  EXPECT_EQ(exif_orientation(prefixed.data(), prefixed.size()), 3);
  Bytes far = exif(6, false);
  far[4] = far[5] = far[6] = far[7] = 0xFF;
  EXPECT_EQ(exif_orientation(far.data(), far.size()), 1);
  EXPECT_EQ(exif_orientation(nullptr, 0), 1);
}

// A picture of 4 x 4 with one more chunk after its header.
Bytes with_chunk(const Bytes& pixels, const std::string& name, const Bytes& block) {
  Bytes file = encode_png(4, 4, pixels, {}), chunk(4);
  put_big_endian(chunk.data(), static_cast<std::uint32_t>(block.size()));
  for (const char c : name) chunk.push_back(static_cast<std::uint8_t>(c));
  chunk.insert(chunk.end(), block.begin(), block.end());
  chunk.resize(chunk.size() + 4);
  file.insert(file.begin() + 33, chunk.begin(), chunk.end());
  set_chunk_checksums(file);
  return file;
}

TEST(Png, HasAnOrientation) {
  const Bytes pixels = random_bytes(48, 1), file = with_chunk(pixels, "eXIf", exif(8, true));
  EXPECT_EQ(decode(file).orientation, 8);
  EXPECT_EQ(decode(file).pixels, pixels);
}

TEST(Png, RefusesAnimations) {
  const Bytes pixels = random_bytes(48, 1);
  expect_user_error(
      [&] {
        decode(with_chunk(pixels, "acTL", {0, 0, 0, 2, 0, 0, 0, 0}));
      },
      "a: is animated; save the picture that is wanted");
  EXPECT_EQ(decode(with_chunk(pixels, "acTL", {0, 0, 0, 1, 0, 0, 0, 0})).pixels, pixels);
}

TEST(Alpha, IsPutOnABackgroundOrDroppedOrRefused) {
  const Bytes rgba = {200, 100, 0, 255, 200, 100, 0, 0, 200, 100, 0, 51, 9, 9, 9, 255};
  const auto with = [&](PictureAlpha rule) {
    return fit_picture({2, 2, 4, rgba}, rules_of(2, PictureFit::exact, rule), "a");
  };
  EXPECT_EQ(with(PictureAlpha::drop), (Bytes{200, 100, 0, 200, 100, 0, 200, 100, 0, 9, 9, 9}));
  EXPECT_EQ(with(PictureAlpha::black), (Bytes{200, 100, 0, 0, 0, 0, 40, 20, 0, 9, 9, 9}));
  EXPECT_EQ(with(PictureAlpha::white), (Bytes{200, 100, 0, 255, 255, 255, 244, 224, 204, 9, 9, 9}));
  expect_user_error([&] { with(PictureAlpha::refuse); },
                    "a: is partly transparent; put it on a background with --alpha");
  const Bytes grey = {200, 255, 100, 0};
  EXPECT_EQ(fit_picture({1, 2, 2, grey}, rules_of(1, PictureFit::crop, PictureAlpha::white), "a").size(), 3u);
}

// A channel that says nothing is no reason to refuse a picture.
TEST(Alpha, IsDroppedWhereItIsOpaque) {
  EXPECT_EQ(fit_picture({1, 1, 4, {1, 2, 3, 255}}, rules_of(1, PictureFit::exact), "a"), (Bytes{1, 2, 3}));
}

}  // namespace
}  // namespace longstride
