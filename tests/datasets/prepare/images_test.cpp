#include <sys/stat.h>

#include "datasets/formats/input_files.h"
#include "tests/datasets/formats/npy_writer.h"
#include "tests/datasets/formats/pictures.h"
#include "tests/datasets/formats/png_encoder.h"

namespace longstride {
namespace {

std::string text_of(const Bytes& bytes) { return std::string(bytes.begin(), bytes.end()); }

TEST(PrepareImages, GivesTheSamePixelsFromEveryForm) {
  const Folder folder;
  const Bytes pixels = random_bytes(5 * picture, 1);
  for (std::size_t i = 0; i < 5; ++i)
    put_file(folder / fmt::format("p/{}.png", i), encode_png(side, side, slice(pixels, i), {}));
  put_file(folder / "p/labels.tsv", {1, 2, 3});
  put_file(folder / "p/._0.png", {1, 2, 3});
  put_file(folder / "nhwc.npy", make_npy("(5, 8, 8, 3)", pixels));
  put_file(folder / "nchw.npy", make_npy("(5, 3, 8, 8)", planar(pixels)));
  put_file(folder / "flat.npy", make_npy("(5, 192)", planar(pixels)));
  for (const char* form : {"p", "nhwc.npy", "nchw.npy", "flat.npy"})
    EXPECT_TRUE(train_of(config_of({folder / form}), folder) == pixels) << form;
  EXPECT_EQ(Dataset::open(folder / "x.h5")->info().image_bytes(), static_cast<std::int64_t>(picture));
}

TEST(PrepareImages, DoesNotReplaceAPictureItReads) {
  const Folder folder;
  const Bytes png = encode_png(side, side, random_bytes(picture, 9), {});
  put_file(folder / "p/a.png", png);
  put_file(folder / "p/sub/b.png", png);
  for (const char* name : {"p/a.png", "p/sub/b.png", "p/sub/../a.png"}) {
    expect_user_error([&] { prepare_images(config_of({folder / "p"}), to(folder / name, true)); }, "is also the input");
    EXPECT_EQ(get_file(folder / name), png);
  }
}

TEST(PrepareImages, RefusesSharesThatLeaveASplitEmpty) {
  const Folder folder;
  put_file(folder / "a.npy", make_npy("(5, 8, 8, 3)", random_bytes(5 * picture, 1)));
  PrepareImagesConfig config = config_of({folder / "a.npy"});
  config.split = "0.9,0.05,0.05";
  expect_user_error([&] { prepare_images(config, to(folder / "x.h5")); }, "has 5 pictures, of which --split");
  config.split = "4,1,0";
  prepare_images(config, to(folder / "x.h5"));
}

// A folder that is also reached by links counts once, under its own name, and a link to a parent makes no loop.
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

TEST(FilesUnder, RefusesWhatCannotBeReadInsteadOfDroppingIt) {
  namespace fs = std::filesystem;
  const Folder folder;
  put_file(folder / "a.png", {1});
  const auto refuse = [&](const std::string& name, const std::string& message) {
    expect_user_error([&] { files_under(folder.path()); }, folder / name + ": is a " + message);
    fs::remove(folder / name);
  };
  fs::create_symlink("../annex/b.png", folder / "b.png");
  refuse("b.png", "link to ../annex/b.png, which cannot be read: No such file");
  fs::create_symlink("a.png/c", folder / "c");
  refuse("c", "link to a.png/c, which cannot be read: Not a directory");
  fs::create_symlink("d", folder / "d");
  refuse("d", "link to d, which cannot be read: Too many levels");
  ASSERT_EQ(::mkfifo((folder / "e.png").c_str(), 0600), 0);
  refuse("e.png", "pipe, a socket or a device");
  fs::create_symlink("/dev/zero", folder / "f");
  refuse("f", "pipe, a socket or a device");
  fs::create_symlink("absent", folder / ".hidden");
  EXPECT_EQ(files_under(folder.path()), std::vector<std::string>{folder / "a.png"});
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

// Otherwise pictures would be validated that were trained on.
TEST(PrepareImages, RefusesAPictureThatTwoInputsHold) {
  const Folder folder;
  for (const char* name : {"p/a.png", "p/sub/b.png", "q/c.png"})
    put_file(folder / name, encode_png(side, side, random_bytes(picture, 4), {}));
  std::filesystem::create_symlink(folder / "p/a.png", folder / "q/d.png");
  PrepareImagesConfig config = config_of({folder / "p"});
  config.split = "";
  for (const char* other : {"p/sub", "p/sub/b.png", "q"}) {
    config.valid_inputs = {folder / other};
    expect_user_error([&] { prepare_images(config, to(folder / "x.h5")); }, "; give every picture once");
  }
  config.valid_inputs = {folder / "q/c.png"};
  prepare_images(config, to(folder / "x.h5"));
}

// Text and sound are refused likewise: joined_test.cpp and sound/audio_test.cpp.
TEST(PrepareImages, RefusesALinkToAnotherPictureOfItsFolder) {
  const Folder folder;
  put_file(folder / "p/b/a.png", encode_png(side, side, random_bytes(picture, 4), {}));
  std::filesystem::create_symlink("b/a.png", folder / "p/z.png");
  expect_user_error([&] { prepare_images(config_of({folder / "p"}), to(folder / "x.h5")); },
                    folder / "p/z.png" + ": is given twice (also as " + (folder / "p/b/a.png") + "); remove the link");
  std::filesystem::remove(folder / "p/z.png");
  put_file(folder / "other.png", encode_png(side, side, random_bytes(picture, 5), {}));
  std::filesystem::create_symlink(folder / "other.png", folder / "p/z.png");
  PrepareImagesConfig config = config_of({folder / "p"});
  config.split = "1,1,0";
  prepare_images(config, to(folder / "x.h5"));
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

TEST(PrepareImages, SaysHowToConvertArraysOfOtherTypes) {
  const Folder folder;
  const Bytes pixels = random_bytes(384, 2);
  const std::string scaled =
      "in C order; convert it with numpy.rint(x).astype(numpy.uint8), after scaling it to 0 to 255";
  const std::string objects = "in C order; give pictures as PNG files, or as one array of numbers, which numpy.stack";
  for (const auto& [descr, message] : {std::pair<std::string, std::string>{"<f4", scaled},
                                       {"|b1", scaled},
                                       {">u2", scaled},
                                       {"<i8", scaled},
                                       {"|O", objects},
                                       {"<U1", objects}}) {
    put_file(folder / "a.npy", make_npy("(2, 8, 8, 3)", pixels, descr));
    expect_user_error([&] { prepare_images(config_of({folder / "a.npy"}), to(folder / "x.h5")); },
                      "holds " + descr + ", but pictures are uint8 (|u1) " + message);
  }
  put_file(folder / "a.npy", make_npy("(2, 8, 8, 3)", pixels, "|u1", "True"));
  expect_user_error([&] { prepare_images(config_of({folder / "a.npy"}), to(folder / "x.h5")); },
                    "holds |u1 in Fortran order, but pictures are uint8 (|u1) in C order; convert it with "
                    "numpy.ascontiguousarray(x)");
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
  put_file(folder / "none.npy", make_npy("(0, 8, 8, 3)", {}));
  put_file(folder / "text.npy", {'h', 'e', 'l', 'l', 'o', ' ', 'w', 'o', 'r', 'l', 'd'});
  put_file(folder / "packed/a.tar", {1});
  put_file(folder / "train_data_batch_1", {0x80, 4, 0x95});
  put_file(folder / "photos/a.gif", {'G', 'I', 'F', '8'});
  put_file(folder / "wrong.webp", {'G', 'I', 'F', '8'});
  PngSettings clear;
  clear.type = PNG_COLOR_TYPE_RGB_ALPHA;
  put_file(folder / "clear.png", encode_png(8, 8, Bytes(256, 7), clear));
  put_file(folder / "both/a.png", {1});
  put_file(folder / "both/a.npy", {1});
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"small.png", "is 4 x 4 pixels, but --size is 8; scale it with --fit crop or --fit pad"},
      {"wrong.webp", "wrong.webp: is not a PNG, JPEG or WebP file, judging by its first bytes"},
      {"clear.png", "clear.png: is partly transparent"},
      {"bad.png", "is not a PNG file"},
      {"shape.npy", "(N, 8, 8, 3), (N, 3, 8, 8) or (N, 192)"},
      {"long.npy", "needs 576 bytes, but 384 follow"},
      {"short.npy", "needs 192 bytes, but 384 follow"},
      {"huge.npy", "impossible shape"},
      {"negative.npy", "damaged .npy header"},
      {"none.npy", "holds no picture"},
      {"text.npy", "is not a .npy file"},
      {"photos", "photos: holds no PNG, JPEG, WebP, .npy or .npz files, but 1 other file (1 .gif); give a folder"},
      {"packed", "holds no PNG, JPEG, WebP, .npy or .npz files, but 1 other file (1 .tar); name the archives in it"},
      {"train_data_batch_1", "train_data_batch_1: is a Python pickle, which is not read; give its pictures as .npz"},
      {"both", "both pictures and arrays"},
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
  for (const auto& [name, whole] : {std::pair<std::string, Bytes>{"a.npy", make_npy("(4, 8, 8, 3)", pixels)},
                                    {"a.png", encode_png(side, side, slice(pixels, 0), {})}})
    for (std::size_t part = 0; part < 16; ++part) {
      SCOPED_TRACE(fmt::format("{} cut at sixteenth {}", name, part));
      put_file(folder / name, cut_short(whole, part));
      expect_user_error([&] { prepare_images(config_of({folder / name}), to(folder / "x.h5")); }, name);
    }
  EXPECT_FALSE(std::filesystem::exists(folder / "x.h5"));
  EXPECT_FALSE(folder.holds_temporaries());
}

}  // namespace
}  // namespace longstride
