// `prepare images` with pictures of every kind, as a user runs it.
#include "tests/datasets/archive/archives.h"
#include "tests/datasets/command.h"
#include "tests/datasets/pictures/golden.h"
#include "tests/datasets/pictures/jpeg_encoder.h"
#include "tests/datasets/pictures/webp_encoder.h"
#include "tests/datasets/png_encoder.h"

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
         {"1 file(s) that are not pictures are left out: 1 .csv", "1 picture(s) were turned as their EXIF says",
          "; transparency over white", "1 picture(s) were rounded from 16 to 8 bits per channel",
          "; scaled to 8 x 8 (bicubic, cropped)"})
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

}  // namespace
}  // namespace longstride
