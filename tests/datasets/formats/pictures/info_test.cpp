// `info --picture`: a contact sheet of the pictures of a dataset.
#include <filesystem>

#include "datasets/formats/png.h"
#include "tests/datasets/command.h"
#include "tests/datasets/formats/npy_writer.h"
#include "tests/datasets/formats/pictures.h"

namespace longstride {
namespace {

Picture read_sheet(const std::string& path) {
  const Bytes file = get_file(path);
  return read_png(file.data(), file.size(), path);
}

Outcome info(const Folder& folder, const std::string& options) {
  return call(fmt::format("info {0}/x.h5 --picture {0}/sheet.png {1}", folder.path(), options));
}

// 13 pictures of 8 x 8 pixels in train, in two rows at 64 x 64 each, and 1 in valid below.
TEST(InfoPicture, ShowsThePicturesOfEverySplitInTheirOrder) {
  const Folder folder;
  const Bytes pixels = random_bytes(14 * picture, 1);
  put_file(folder / "a.npy", make_npy("(13, 8, 8, 3)", Bytes(pixels.begin(), pixels.begin() + 13 * picture)));
  put_file(folder / "b.npy", make_npy("(1, 8, 8, 3)", slice(pixels, 13)));
  PrepareImagesConfig config = config_of({folder / "a.npy"});
  config.split = "";
  config.valid_inputs = {folder / "b.npy"};
  prepare_images(config, to(folder / "x.h5"));
  const Outcome outcome = info(folder, "");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("sheet.png: 14 pictures of 2 splits\n"), std::string::npos) << outcome.text;
  const Picture sheet = read_sheet(folder / "sheet.png");
  constexpr std::size_t tile = 64, gap = 2, band_gap = 12, width = 12 * (tile + gap) - gap;
  EXPECT_EQ(sheet.columns, static_cast<std::int64_t>(width));
  EXPECT_EQ(sheet.rows, static_cast<std::int64_t>(3 * tile + gap + band_gap));
  const auto expect_tile = [&](std::size_t index, std::size_t top, std::size_t left) {
    const Bytes wanted = slice(pixels, index);
    for (std::size_t y = 0; y < tile; ++y)
      for (std::size_t x = 0; x < tile; ++x)
        for (std::size_t c = 0; c < 3; ++c)
          ASSERT_EQ(sheet.pixels[((top + y) * width + left + x) * 3 + c], wanted[(y / 8 * side + x / 8) * 3 + c])
              << index << " at " << y << ", " << x;
  };
  for (std::size_t i = 0; i < 12; ++i) expect_tile(i, 0, i * (tile + gap));
  expect_tile(12, tile + gap, 0);
  expect_tile(13, 2 * tile + gap + band_gap, 0);
}

TEST(InfoPicture, ReducesLargePicturesAndShowsAtMost96) {
  const Folder folder;
  put_file(folder / "a.npy", make_npy("(200, 160, 160, 3)", Bytes(200 * 160 * 160 * 3, 77)));
  PrepareImagesConfig config = config_of({folder / "a.npy"});
  config.side = 160;
  prepare_images(config, to(folder / "x.h5"));
  const Outcome outcome = info(folder, "");
  EXPECT_NE(outcome.text.find("sheet.png: 96 pictures of 1 split\n"), std::string::npos) << outcome.text;
  const Picture sheet = read_sheet(folder / "sheet.png");
  EXPECT_EQ(sheet.rows, 8 * 130 - 2);
  EXPECT_EQ(sheet.columns, 12 * 130 - 2);
  EXPECT_EQ(sheet.pixels[0], 77);
}

TEST(InfoPicture, RefusesTextAndReplacesOnlyWhenForced) {
  const Folder folder;
  put_file(folder / "text", Bytes(100, 'a'));
  prepare_bytes({{folder / "text"}}, to(folder / "x.h5"));
  const Outcome text = info(folder, "");
  EXPECT_EQ(text.code, 2);
  EXPECT_NE(text.text.find("x.h5: holds text, but --picture shows pictures and sound; leave it out"), std::string::npos)
      << text.text;
  put_file(folder / "a.npy", make_npy("(4, 8, 8, 3)", random_bytes(4 * picture, 2)));
  prepare_images(config_of({folder / "a.npy"}), to(folder / "x.h5", true));
  put_file(folder / "sheet.png", {1});
  const Outcome kept = info(folder, "");
  EXPECT_EQ(kept.code, 2);
  EXPECT_NE(kept.text.find("sheet.png: already exists; choose another --picture, or replace"), std::string::npos)
      << kept.text;
  EXPECT_EQ(get_file(folder / "sheet.png"), Bytes{1});
  const Outcome other = call(fmt::format("info {0}/x.h5 --picture {0}/sheet.jpg", folder.path()));
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.text.find("sheet.jpg: pictures are written as PNG; give --picture a name that ends in .png"),
            std::string::npos)
      << other.text;
  EXPECT_FALSE(std::filesystem::exists(folder / "sheet.jpg"));
  EXPECT_EQ(info(folder, "--force").code, 0);
  EXPECT_GT(get_file(folder / "sheet.png").size(), 1u);
}

}  // namespace
}  // namespace longstride
