#include <zlib.h>

#include <cstdlib>

#include "datasets/formats/input_files.h"
#include "datasets/formats/tar.h"
#include "datasets/formats/zip.h"
#include "datasets/prepare/prepare.h"
#include "framework/core/files/sha256.h"
#include "tests/datasets/archives.h"
#include "tests/datasets/png_encoder.h"
#include "tests/datasets/support.h"

namespace longstride {
namespace {

constexpr std::size_t side = 8, picture = side * side * 3;

PrepareOutput to(const std::string& path) {
  PrepareOutput output;
  output.path = path;
  return output;
}

PrepareImagesConfig config_of(std::vector<std::string> inputs) {
  PrepareImagesConfig config;
  config.inputs = std::move(inputs);
  config.split = "1.0,0.0";
  config.side = side;
  return config;
}

Bytes slice(const Bytes& all, std::size_t i) {
  return Bytes(all.begin() + static_cast<std::ptrdiff_t>(i * picture),
               all.begin() + static_cast<std::ptrdiff_t>((i + 1) * picture));
}

std::string text_of(const Bytes& bytes) { return std::string(bytes.begin(), bytes.end()); }

// (N, H, W, 3) to (N, 3, H, W)
Bytes planar(const Bytes& pixels) {
  Bytes out(pixels.size());
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const std::size_t n = i / picture, pixel = i % picture / 3, channel = i % 3;
    out[n * picture + channel * side * side + pixel] = pixels[i];
  }
  return out;
}

Bytes train_of(const PrepareImagesConfig& config, const Folder& folder) {
  PrepareOutput output = to(folder / "x.h5");
  output.replace = true;
  prepare_images(config, output);
  return whole_split(*Dataset::open(folder / "x.h5"), "train");
}

TEST(PrepareImages, GivesTheSamePixelsFromEveryForm) {
  const Folder folder;
  const Bytes pixels = random_bytes(5 * picture, 1);
  std::vector<std::pair<std::string, Bytes>> files;
  for (std::size_t i = 0; i < 5; ++i)
    files.emplace_back(fmt::format("p/{}.png", i), encode_png(side, side, slice(pixels, i), {}));
  for (const auto& [name, bytes] : files) put_file(folder / name, bytes);
  put_file(folder / "p/labels.tsv", {1, 2, 3});
  put_file(folder / "p/._0.png", {1, 2, 3});
  files.emplace_back("p/labels.tsv", Bytes{1, 2});
  put_file(folder / "p.tar", make_tar(files));
  put_file(folder / "nhwc.npy", make_npy("(5, 8, 8, 3)", pixels));
  put_file(folder / "nchw.npy", make_npy("(5, 3, 8, 8)", planar(pixels)));
  put_file(folder / "flat.npy", make_npy("(5, 192)", planar(pixels)));
  const Bytes flat = make_npy("(5, 192)", planar(pixels)), labels = make_npy("(5,)", Bytes(5, 1));
  put_file(folder / "stored.npz", make_zip({{"labels.npy", labels}, {"data.npy", flat}}, false));
  put_file(folder / "deflated.npz", make_zip({{"data.npy", flat}, {"labels.npy", labels}}, true));
  put_file(folder / "wide.npz", make_zip({{"labels.npy", labels}, {"data.npy", flat}}, true, true));
  for (const char* form : {"p", "p.tar", "nhwc.npy", "nchw.npy", "flat.npy", "stored.npz", "deflated.npz", "wide.npz"})
    EXPECT_TRUE(train_of(config_of({folder / form}), folder) == pixels) << form;
  EXPECT_EQ(Dataset::open(folder / "x.h5")->info().image_bytes(), static_cast<std::int64_t>(picture));
}

Bytes every_split(const PrepareImagesConfig& config, const Folder& folder) {
  Bytes all = train_of(config, folder);
  const auto dataset = Dataset::open(folder / "x.h5");
  for (const char* name : {"valid", "test"}) {
    all.push_back('|');
    const Bytes part = whole_split(*dataset, name);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// The division depends on the names of the pictures, not on what holds them nor on their order in it.
TEST(PrepareImages, DividesAFolderAndItsArchivesAlike) {
  const Folder folder;
  const Bytes pixels = random_bytes(40 * picture, 21);
  NamedFiles files;
  for (std::size_t i = 0; i < 40; ++i)
    files.emplace_back(fmt::format("{}{}.png",
                                   i % 3 == 0   ? "sub/"
                                   : i % 5 == 0 ? "sub-b/"
                                                : "",
                                   i),
                       encode_png(side, side, slice(pixels, i), {}));
  for (const auto& [name, bytes] : files) put_file(folder / "p/" + name, bytes);
  for (const std::string prefix : {"", "./", "p/", "./p//", "/p/"}) {
    NamedFiles members = {{prefix + "1.png", {1, 2, 3}},
                          {prefix + ".hidden/7.png", {1}}};  // written over by what follows
    for (std::size_t i = 0; i < 40; ++i)
      members.emplace_back(prefix + files[i * 23 % 40].first, files[i * 23 % 40].second);
    put_file(folder / fmt::format("{}.tar", prefix.size()), make_tar(members));
  }
  PrepareImagesConfig config = config_of({folder / "p"});
  config.split = "0.7,0.2,0.1";
  config.seed = 3;
  const Bytes wanted = every_split(config, folder);
  for (const int length : {0, 2, 3, 5}) {
    config.inputs = {folder / fmt::format("{}.tar", length)};
    EXPECT_TRUE(every_split(config, folder) == wanted) << length;
  }
}

TEST(PrepareImages, SaysWhatItLeavesOutAndRefusesToLeaveOutMost) {
  const Folder folder;
  const Bytes png = encode_png(side, side, random_bytes(picture, 9), {});
  NamedFiles files = {{"a.png", png}, {"b.png", png}, {"c.JPG", {1}}, {"d.jpg", {1}}};
  for (const bool refused : {false, true}) {
    if (refused) files.emplace_back("labels\x1b[2J.t\x1bv", Bytes{1});
    std::filesystem::remove_all(folder / "p");
    for (const auto& [name, bytes] : files) put_file(folder / "p/" + name, bytes);
    put_file(folder / "p.tar", make_tar(files));
    for (const char* form : {"p", "p.tar"}) {
      std::vector<std::string> notes;
      PrepareOutput output = to(folder / "x.h5");
      output.replace = true;
      output.note = [&](const std::string& note) { notes.push_back(note); };
      PrepareImagesConfig config = config_of({folder / form});
      if (refused) {
        expect_user_error([&] { prepare_images(config, output); },
                          "2 PNG files and 3 other file(s) (2 .jpg, 1 .t\\x1bv)");
        config.skip_others = true;
      }
      prepare_images(config, output);
      ASSERT_EQ(notes.size(), 1u);
      EXPECT_NE(notes[0].find("are left out: 2 .jpg"), std::string::npos) << notes[0];
    }
  }
}

TEST(PrepareImages, DoesNotReplaceAPictureItReads) {
  const Folder folder;
  const Bytes png = encode_png(side, side, random_bytes(picture, 9), {});
  put_file(folder / "p/a.png", png);
  put_file(folder / "p/sub/b.png", png);
  for (const char* name : {"p/a.png", "p/sub/b.png", "p/sub/../a.png"}) {
    PrepareOutput output = to(folder / name);
    output.replace = true;
    expect_user_error([&] { prepare_images(config_of({folder / "p"}), output); }, "is the input, too");
    EXPECT_EQ(get_file(folder / name), png);
  }
}

TEST(PrepareImages, RefusesSharesThatComeOutEmpty) {
  const Folder folder;
  put_file(folder / "a.npy", make_npy("(5, 8, 8, 3)", random_bytes(5 * picture, 1)));
  PrepareImagesConfig config = config_of({folder / "a.npy"});
  config.split = "0.9,0.05,0.05";
  expect_user_error([&] { prepare_images(config, to(folder / "x.h5")); }, "has 5 pictures, of which --split");
  config.split = "4,1,0";
  prepare_images(config, to(folder / "x.h5"));
}

// A folder that links lead to counts once, under its own name, and a link to a parent does not go round.
TEST(FilesUnder, CountsEveryFolderOnce) {
  namespace fs = std::filesystem;
  const Folder folder;
  for (const char* name : {"p/a.png", "p/sub/b.png", "other/c.png"}) put_file(folder / name, {1});
  fs::create_directory_symlink("..", folder / "p/sub/up");
  fs::create_directory_symlink(".", folder / "p/itself");
  fs::create_directory_symlink("sub", folder / "p/again");
  fs::create_directory_symlink(folder / "other", folder / "p/outside");
  fs::create_directory_symlink(folder / "other", folder / "p/zero");
  fs::create_symlink(folder / "other/c.png", folder / "p/d.png");
  const auto at = [&](const char* name) { return folder / name; };
  EXPECT_EQ(files_under(folder / "p"),
            (std::vector<std::string>{at("p/a.png"), at("p/d.png"), at("p/outside/c.png"), at("p/sub/b.png")}));
}

// A name is not cut at the 100 bytes that fit a header, where its .png would be lost.
TEST(PrepareImages, ReadsLongNamesInTars) {
  const Folder folder;
  const Bytes pixels = random_bytes(2 * picture, 8);
  const NamedFiles files = {{std::string(120, 'x') + ".png", encode_png(side, side, slice(pixels, 0), {})},
                            {"y.png", encode_png(side, side, slice(pixels, 1), {})}};
  put_file(folder / "gnu.tar", make_tar(files, false));
  put_file(folder / "pax.tar", make_tar(files, true));
  EXPECT_TRUE(train_of(config_of({folder / "gnu.tar"}), folder) == pixels);
  EXPECT_TRUE(train_of(config_of({folder / "pax.tar"}), folder) == pixels);
}

TEST(PrepareImages, DividesByASeededPermutationOrByTheInputsGiven) {
  const Folder folder;
  const Bytes pixels = random_bytes(100 * picture, 2);
  put_file(folder / "a.npy", make_npy("(100, 8, 8, 3)", pixels));
  put_file(folder / "b.npy", make_npy("(2, 8, 8, 3)", random_bytes(2 * picture, 3)));
  PrepareImagesConfig config = config_of({folder / "a.npy"});
  config.split = "80,15,5";
  prepare_images(config, to(folder / "x.h5"));
  const auto dataset = Dataset::open(folder / "x.h5");
  std::vector<std::string> wanted, found;
  for (std::size_t i = 0; i < 100; ++i) wanted.push_back(text_of(slice(pixels, i)));
  for (const auto& [name, count] : {std::pair{"train", 80u}, {"valid", 15u}, {"test", 5u}}) {
    const Bytes part = whole_split(*dataset, name);
    ASSERT_EQ(part.size(), count * picture);
    for (std::size_t i = 0; i < count; ++i) found.push_back(text_of(slice(part, i)));
  }
  EXPECT_NE(found, wanted) << "the first pictures are all in train";
  std::sort(wanted.begin(), wanted.end());
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, wanted);

  config.split = "";
  config.valid_inputs = {folder / "b.npy"};
  EXPECT_TRUE(train_of(config, folder) == pixels);
  EXPECT_EQ(Dataset::open(folder / "x.h5")->size("valid").sequences, 2);
}

TEST(PrepareImages, ConvertsGreyOnlyWhenAsked) {
  const Folder folder;
  PngSettings grey;
  grey.type = PNG_COLOR_TYPE_GRAY;
  const Bytes levels = random_bytes(side * side, 4);
  put_file(folder / "g.png", encode_png(side, side, levels, grey));
  put_file(folder / "g.npy", make_npy("(1, 8, 8)", levels));
  for (const char* form : {"g.png", "g.npy"}) {
    PrepareImagesConfig config = config_of({folder / form});
    expect_user_error([&] { prepare_images(config, to(folder / "y.h5")); }, "--grey convert");
    config.convert_grey = true;
    const Bytes rgb = train_of(config, folder);
    ASSERT_EQ(rgb.size(), picture);
    for (std::size_t i = 0; i < picture; ++i) ASSERT_EQ(rgb[i], levels[i / 3]) << form;
  }
}

TEST(PrepareImages, RefusesWhatDoesNotFitAndLeavesNothing) {
  const Folder folder;
  const Bytes pixels = random_bytes(2 * picture, 5);
  put_file(folder / "small.png", encode_png(4, 4, Bytes(48, 1), {}));
  put_file(folder / "bad.png", {0x89, 'P', 'N', 'G'});
  put_file(folder / "a.npy", make_npy("(2, 8, 8, 3)", pixels));
  put_file(folder / "shape.npy", make_npy("(2, 192, 1)", pixels));
  put_file(folder / "long.npy", make_npy("(3, 8, 8, 3)", pixels));
  put_file(folder / "short.npy", make_npy("(1, 8, 8, 3)", pixels));
  put_file(folder / "huge.npy", make_npy("(4294967296, 4294967296, 4294967296)", pixels));
  put_file(folder / "negative.npy", make_npy("(-2, 8, 8, 3)", pixels));
  put_file(folder / "float.npy", make_npy("(2, 8, 8, 3)", pixels, "<f4"));
  put_file(folder / "fortran.npy", make_npy("(2, 8, 8, 3)", pixels, "|u1", "True"));
  put_file(folder / "none.npy", make_npy("(0, 8, 8, 3)", {}));
  put_file(folder / "text.npy", {'h', 'e', 'l', 'l', 'o', ' ', 'w', 'o', 'r', 'l', 'd'});
  put_file(folder / "text.npz", {'h', 'e', 'l', 'l', 'o', ' ', 'w', 'o', 'r', 'l', 'd'});
  put_file(folder / "names.npz", make_zip({{"x.npy", {1}}, {"y.npy", {1}}}, false));
  Bytes wrong_sum = make_zip({{"data.npy", make_npy("(2, 8, 8, 3)", pixels)}}, false);
  wrong_sum[300] ^= 1;
  put_file(folder / "sum.npz", wrong_sum);
  put_file(folder / "empty.tar", Bytes(1024, 0));
  put_file(folder / "text.tar", Bytes(2048, 'x'));
  put_file(folder / "packed.tar", {0xfd, '7', 'z', 'X', 'Z', 0, 0, 0});
  put_file(folder / "photos/a.jpg", {0xff, 0xd8});
  put_file(folder / "both/a.png", {1});
  put_file(folder / "both/a.npy", {1});
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"small.png", "is 4 x 4 pixels, but --size is 8"},
      {"bad.png", "is no PNG file"},
      {"shape.npy", "(N, 8, 8, 3), (N, 3, 8, 8) or (N, 192)"},
      {"long.npy", "needs 576 bytes, but 384 follow"},
      {"short.npy", "needs 192 bytes, but 384 follow"},
      {"huge.npy", "impossible shape"},
      {"negative.npy", "damaged .npy header"},
      {"float.npy", "holds <f4, but pictures are uint8"},
      {"fortran.npy", "in Fortran order"},
      {"none.npy", "holds no picture"},
      {"text.npy", "is no .npy file"},
      {"text.npz", "is no zip archive"},
      {"names.npz", "no array 'data' among its 2: x.npy y.npy"},
      {"sum.npz", "checksum of data.npy is wrong"},
      {"empty.tar", "holds no .png"},
      {"text.tar", "is no tar archive"},
      {"packed.tar", "is compressed (xz)"},
      {"photos", "only JPEGs"},
      {"both", "both PNGs and arrays"},
      {"absent", "absent"},
  };
  for (const auto& [name, message] : cases) {
    SCOPED_TRACE(name);
    expect_user_error([&] { prepare_images(config_of({folder / name}), to(folder / "x.h5")); }, message);
  }
  const auto attempt = [&](const std::function<void(PrepareImagesConfig&)>& change) {
    return [&folder, change] {
      PrepareImagesConfig config = config_of({folder / "a.npy"});
      change(config);
      prepare_images(config, to(folder / "x.h5"));
    };
  };
  expect_user_error(attempt([](auto& c) { c.side = 0; }), "--size is 0");
  expect_user_error(attempt([&](auto& c) { c.valid_inputs = {folder / "a.npy"}; }), "--split divides");
  expect_user_error(attempt([&](auto& c) { c.split = "", c.valid_inputs = {folder / "a.npy"}; }), "given twice");
  expect_user_error(attempt([](auto& c) { c.split = "2,1"; }), "adds up to 3");
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  EXPECT_FALSE(folder.holds_temporaries());
}

TEST(PrepareImages, RefusesEveryTruncation) {
  const Folder folder;
  const Bytes pixels = random_bytes(4 * picture, 6);
  const Bytes npy = make_npy("(4, 8, 8, 3)", pixels);
  std::vector<std::pair<std::string, Bytes>> files;
  for (std::size_t i = 0; i < 4; ++i)
    files.emplace_back(fmt::format("{}.png", i), encode_png(side, side, slice(pixels, i), {}));
  for (const auto& [name, whole] : {std::pair<std::string, Bytes>{"a.npy", npy},
                                    {"a.npz", make_zip({{"data.npy", npy}}, true)},
                                    {"b.npz", make_zip({{"data.npy", npy}}, false)},
                                    {"a.tar", make_tar(files)},
                                    {"a.png", files[0].second}}) {
    for (std::size_t part = 0; part < 16; ++part) {
      SCOPED_TRACE(fmt::format("{} cut at sixteenth {}", name, part));
      // The end mark of a tar archive has two blocks, of which one is enough.
      const std::size_t length = whole.size() * part / 16;
      if (name == "a.tar" && length > whole.size() - 1024 + 512) continue;
      put_file(folder / name, Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)));
      expect_user_error([&] { prepare_images(config_of({folder / name}), to(folder / "x.h5")); }, name);
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  EXPECT_FALSE(folder.holds_temporaries());
}

// Real pictures, from the shared archive: unpacked by xz where there is one.
TEST(PrepareImages, TakesRealPictures) {
  const std::string packed = shared_file("image64/tiny_imagenet_val_400.tar.xz");
  if (packed.empty()) GTEST_SKIP() << "no shared data";
  const Folder folder;
  const std::string tar = folder / "real.tar";
  if (std::system(fmt::format("xz -dc '{}' > '{}' 2>/dev/null", packed, tar).c_str()) != 0) GTEST_SKIP() << "no xz";
  PrepareImagesConfig config;
  config.inputs = {tar};
  config.split = "400,0,0";
  prepare_images(config, to(folder / "x.h5"));
  const auto dataset = Dataset::open(folder / "x.h5");
  ASSERT_EQ(dataset->size("train").sequences, 400);
  // They are in the order of their names; in that of the archive, their checksum is published.
  std::vector<std::string> names, sorted;
  const FileBlob blob(tar);
  BlobStream stream(blob, 0, blob.size());
  for (TarReader archive(stream); archive.next();)
    if (archive.name().ends_with(".png")) names.push_back(archive.name());
  sorted = names;
  std::sort(sorted.begin(), sorted.end());
  const Bytes pixels = whole_split(*dataset, "train");
  Sha256 sha;
  for (const std::string& name : names) {
    const auto at = std::lower_bound(sorted.begin(), sorted.end(), name) - sorted.begin();
    sha.update(pixels.data() + at * 12288, 12288);
  }
  // sha256 of the bytes whose md5 is published with the archive, f5d01dd53fce3d41cd07faff7f8ddaa1
  EXPECT_EQ(sha.hex(), "36fad4173eae4f77b36421085f21ab2b469c4f82e877882a3ff303ab69367528");
}

}  // namespace
}  // namespace longstride
