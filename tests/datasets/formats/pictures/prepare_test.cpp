// `prepare images` with pictures of every kind, as a user runs it.
#include "tests/datasets/command.h"
#include "tests/datasets/formats/archive/archives.h"
#include "tests/datasets/formats/pictures/golden.h"
#include "tests/datasets/formats/pictures/jpeg_encoder.h"
#include "tests/datasets/formats/pictures/webp_encoder.h"
#include "tests/datasets/formats/png_encoder.h"

namespace longstride {
namespace {

constexpr std::size_t rows = 12, columns = 20;

// One picture of every format under names that do not say which, and a file of another kind.
NamedFiles mixed_files() {
  const Bytes rgb = random_bytes(rows * columns * 3, 1), rgba = random_bytes(rows * columns * 4, 2);
  PngSettings deep;
  deep.bits = 16;
  return {{"a.jpg", encode_png(rows, columns, rgb, {})},
          {"b.png", encode_jpeg(rows, columns, rgb, {3, 90, true, exif(6, true)})},
          {"c", encode_webp(rows, columns, rgba, 4)},
          {"sub/d.JPEG", encode_jpeg(rows, columns, Bytes(rows * columns, 50), {1, 90, false, {}})},
          {"sub/e.PNG", encode_png(8, 8, random_bytes(8 * 8 * 6, 3), deep)},
          {"labels.csv", {'a', ',', 'b'}}};
}

std::string arguments(const Folder& folder, const std::string& input) {
  return fmt::format("prepare images --force --input {0}/{1} --output {0}/x.h5 --split 1.0,0.0 --size 8 --grey convert",
                     folder.path(), input);
}

TEST(PrepareImagesCommand, TakesPicturesByTheirContentFromFoldersAndArchives) {
  const Folder folder;
  const NamedFiles files = mixed_files();
  Bytes wanted;
  for (const auto& [name, bytes] : files) {
    put_file(folder / "p/" + name, bytes);
    if (name == "labels.csv") continue;
    const Bytes pixels = fit_picture(decode(bytes), rules_of(8, PictureFit::crop, PictureAlpha::white), name);
    wanted.insert(wanted.end(), pixels.begin(), pixels.end());
  }
  put_file(folder / "p.tar", make_archive(files, "gnutar"));
  put_file(folder / "without_extension", make_archive(files, "ustar"));
  put_file(folder / "p.tar.gz", make_archive(files, "gnutar", "gzip"));
  put_file(folder / "p.tar.xz", make_archive(files, "gnutar", "xz"));
  put_file(folder / "p.zip", make_archive(files, "zip"));
  for (const char* form : {"p", "p.tar", "without_extension", "p.tar.gz", "p.tar.xz", "p.zip"}) {
    const Outcome outcome = call(arguments(folder, form) + " --fit crop --alpha white");
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    EXPECT_TRUE(whole_split(*Dataset::open(folder / "x.h5"), "train") == wanted) << form;
    for (const char* said :
         {"left out 1 file other than pictures: 1 .csv", "turned 1 picture as EXIF says", "; transparency over white",
          "rounded 1 picture from 16 to 8 bits per channel", "; scaled to 8 x 8 (bicubic, cropped)"})
      EXPECT_NE(outcome.text.find(said), std::string::npos) << said << "\n" << outcome.text;
  }
}

TEST(PrepareImagesCommand, RefusesWhatNeedsADecision) {
  const Folder folder;
  for (const auto& [name, bytes] : mixed_files()) put_file(folder / name, bytes);
  const auto refused = [&](const std::string& options, const std::string& message) {
    const Outcome outcome = call(options);
    EXPECT_EQ(outcome.code, 2) << outcome.text;
    EXPECT_NE(outcome.text.find(message), std::string::npos) << outcome.text;
    EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  };
  refused(arguments(folder, "a.jpg"),
          "a.jpg: is 20 x 12 pixels, but --size is 8; scale it with --fit crop or --fit pad");
  refused(arguments(folder, "b.png"), "b.png: is 12 x 20 pixels, but --size is 8");  // turned
  refused(arguments(folder, "c") + " --fit pad", "c: is partly transparent; put it on a background with --alpha black");
  refused(arguments(folder, "a.jpg") + " --fit stretch", "--fit");
  refused(arguments(folder, "a.jpg") + " --alpha grey", "--alpha");
}

// Pictures of 8 x 8 pixels, of which six need a decision or cannot be read.
NamedFiles flawed_files() {
  const Bytes rgb = random_bytes(8 * 8 * 3, 1), png = encode_png(8, 8, rgb, {});
  NamedFiles files;
  for (std::uint64_t i = 0; i < 10; ++i)
    files.emplace_back(fmt::format("good{}.png", i), encode_png(8, 8, random_bytes(192, 20 + i), {}));
  files.emplace_back("cut.png", Bytes(png.begin(), png.begin() + 60));
  files.emplace_back("empty.jpg", Bytes{});
  files.emplace_back("grey.jpg", encode_jpeg(8, 8, Bytes(64, 50), {1, 90, false, {}}));
  files.emplace_back("large.png", encode_png(rows, columns, random_bytes(rows * columns * 3, 3), {}));
  files.emplace_back("transparent.webp", encode_webp(8, 8, random_bytes(256, 2), 4));
  files.emplace_back("inks.jpg", encode_jpeg(8, 8, random_bytes(256, 4), {4, 90, false, {}}));  // is converted
  files.emplace_back("zz.png", Bytes(50, 'x'));
  return files;
}

TEST(PrepareImagesCommand, ListsAllThatItCannotUseAtOnce) {
  const Folder folder;
  const NamedFiles files = flawed_files();
  for (const auto& [name, bytes] : files) put_file(folder / "p/" + name, bytes);
  put_file(folder / "p.tar", make_archive(files, "gnutar"));
  for (const char* form : {"p", "p.tar"}) {
    const std::string command =
        fmt::format("prepare images --force --input {0}/{1} --output {0}/x.h5 --size 8", folder.path(), form);
    const Outcome refused = call(command);
    EXPECT_EQ(refused.code, 2);
    for (const char* said :
         {"cut.png: is the first of 6 pictures (of 17) that cannot be used; convert or remove them, or leave them out "
          "with "
          "--skip-others:\n  ",
          "cut.png: is a damaged PNG file (it is cut short)", "empty.jpg: is not a PNG, JPEG or WebP file",
          "grey.jpg: is grey; convert grey pictures to RGB with --grey convert\n", "large.png: is 20 x 12 pixels",
          "transparent.webp: is partly transparent", "zz.png: is not a PNG"})
      EXPECT_NE(refused.text.find(said), std::string::npos) << said << "\n" << refused.text;
    EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
    const Outcome taken = call(command + " --skip-others");
    EXPECT_EQ(taken.code, 0) << taken.text;
    for (const char* said :
         {"left out: ", "grey.jpg: is grey;", "6 of 17 pictures are left out", "converted 1 picture from CMYK"})
      EXPECT_NE(taken.text.find(said), std::string::npos) << said << "\n" << taken.text;
    const auto dataset = Dataset::open(folder / "x.h5");
    std::int64_t left = 0;
    for (const char* split : split_names) left += dataset->size(split).sequences;
    EXPECT_EQ(left, 11) << taken.text;
    std::filesystem::remove(folder / "x.h5");
  }
}

// The division does not depend on what is left out.
TEST(PrepareImagesCommand, LeavesTheOthersInTheirSplits) {
  const Folder folder;
  Bytes wanted;
  for (const bool damaged : {false, true}) {
    for (int i = 0; i < 20; ++i) {
      Bytes file = encode_png(8, 8, Bytes(192, static_cast<std::uint8_t>(i)), {});
      if (damaged && i % 6 == 1) file.resize(50);
      put_file(folder / fmt::format("p/{:02}.png", i), file);
    }
    const Outcome outcome = call(fmt::format(
        "prepare images --force --skip-others --input {0}/p --output {0}/x.h5 --size 8 --split 0.5,0.25,0.25",
        folder.path()));
    ASSERT_EQ(outcome.code, 0) << outcome.text;
    Bytes found;
    const auto dataset = Dataset::open(folder / "x.h5");
    for (const char* split : split_names) {
      const Bytes pixels = whole_split(*dataset, split);
      for (std::size_t at = 0; at < pixels.size(); at += 192)
        if (pixels[at] % 6 != 1) found.push_back(pixels[at]);
      found.push_back('|');
    }
    if (damaged) {
      EXPECT_EQ(found, wanted);
    }
    wanted = found;
  }
}

// As without --fit, which would be noticed after all of a million pictures.
TEST(PrepareImagesCommand, StopsListingAfterAThousand) {
  const Folder folder;
  const Bytes png = encode_png(4, 4, Bytes(48, 9), {});
  NamedFiles files;
  for (int i = 0; i < 1500; ++i) files.emplace_back(fmt::format("{:04}.png", i), png);
  put_file(folder / "p.tar", make_archive(files, "ustar"));
  const std::string command = fmt::format("prepare images --input {0}/p.tar --output {0}/x.h5 --size 8", folder.path());
  const Outcome refused = call(command);
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.text.find("0000.png: is the first of at least 1,000 pictures (of 1,500)"), std::string::npos)
      << refused.text;
  EXPECT_NE(refused.text.find("\n  and 950 more\n"), std::string::npos) << refused.text;
  EXPECT_EQ(refused.text.find("0050.png"), std::string::npos) << refused.text;
  const Outcome none = call(command + " --skip-others");
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.text.find("cannot be used, and neither can any other of 1,500 pictures"), std::string::npos)
      << none.text;
}

}  // namespace
}  // namespace longstride
